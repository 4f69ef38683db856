"""torch-fidelity's VGG-16, in whose features precision and recall are published."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import torch
import torchvision
from torch_fidelity.feature_extractor_vgg16 import FeatureExtractorVGG16

from experiments.common.errors import first_line
from experiments.metrics.context import Context, Network
from experiments.metrics.images import by_size
from experiments.metrics.pretrained import is_published, torchvision_state
from experiments.metrics.settings import refuse

KEY = "vgg16_weights"
WEIGHTS = torchvision.models.VGG16_Weights.IMAGENET1K_V1
LAYER = "fc2_relu"


def vgg16_name(sha256: str) -> str:
    """`VGG-16`, followed by the hash of weights that are not torchvision's own."""
    return "VGG-16" if is_published(WEIGHTS, sha256) else f"VGG-16 {sha256[:8]}"


def vgg16(context: Context) -> Network:
    """`metrics.vgg16_weights`: 4,096 features of pictures of any sizes.

    Raises:
        ConfigError: no download, or a file that does not fit.
    """

    def load() -> tuple[torch.nn.Module, str]:
        weights = context.settings[KEY]
        # Read here first: torch-fidelity unpickles whatever a file holds, of this tensors only.
        _, path, sha256 = torchvision_state(WEIGHTS, weights, KEY)
        try:
            model = FeatureExtractorVGG16(
                "vgg16", [LAYER], feature_extractor_weights_path=str(path)
            )
        except (RuntimeError, TypeError, AttributeError) as error:
            allowed = f"must be torchvision's state dict of VGG-16 ({first_line(error)})"
            raise refuse(KEY, weights, allowed) from error
        return model.to(context.device), sha256

    model, sha256 = context.once(KEY, load)

    @torch.no_grad()
    def features(batch: torch.Tensor) -> np.ndarray:
        return model(batch.to(context.device))[0].cpu().numpy()

    return Network(
        f"vgg16-{LAYER}-{sha256[:16]}",
        lambda images: by_size(images, features),
        4096,
        sha256,
        f"torch-fidelity {version('torch-fidelity')}'s VGG-16, layer {LAYER}, weights with "
        f"SHA-256 {sha256[:8]}…",
    )
