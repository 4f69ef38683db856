"""FD-DINOv2: the Fréchet distance to the reference in DINOv2 features.

Stein et al. 2023 (arXiv 2306.04675) found it nearest to people's judgement, with ViT-L/14 and
pictures squeezed to 224 x 224; here the model's own processor resizes and crops.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoImageProcessor, Dinov2Model

from experiments.common.files import digest
from experiments.metrics.context import Context, Network
from experiments.metrics.distance import add_distance
from experiments.metrics.pretrained import load_pretrained, readable, shown
from experiments.metrics.reference import reference

KEY = "dinov2_model"


def network(context: Context) -> Network:
    """The model that `metrics.dinov2_model` names."""
    return context.once(KEY, lambda: load_dinov2(context.settings[KEY], context.device, KEY))


def measure(context: Context) -> None:
    """Add each row's distance to `metrics.reference`, lower is better."""
    name = context.settings[KEY]
    features = network(context)
    column = f"FD-DINOv2 ({shown(name)})"
    add_distance(context, features, column, "fd_dinov2", reference(context, features))


def load_dinov2(name: str | Path, device: str, key: str) -> Network:
    """A Dinov2Model's class token after its last norm. ConfigError where there is none."""
    model, sha256 = load_pretrained(Dinov2Model, name, key)
    with readable("Dinov2Model", str(name), key):
        processor = AutoImageProcessor.from_pretrained(str(name))
    model = model.to(device)

    @torch.no_grad()
    def extract(images: list[Image.Image]) -> np.ndarray:
        inputs = processor(images=images, return_tensors="pt").to(device)
        return model(**inputs).pooler_output.cpu().numpy()

    size = model.config.hidden_size
    identity = digest([sha256, {k: str(v) for k, v in processor.to_dict().items()}])
    described = (
        f"{size} features of the Dinov2Model {shown(name)}, its class token, weights with SHA-256 "
        f"{sha256[:8]}…, images resized by its own processor"
    )
    return Network(f"dinov2-{identity}", extract, size, sha256, described)
