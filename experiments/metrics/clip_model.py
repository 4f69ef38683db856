"""A CLIPModel with its processor and tokenizer, and features of images and texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer

from experiments.common.files import digest
from experiments.metrics.context import Context, Network
from experiments.metrics.features import in_batches
from experiments.metrics.hashes import text_key
from experiments.metrics.pretrained import load_pretrained, readable, shown
from experiments.metrics.settings import refuse


@dataclass(frozen=True)
class Clip:
    """A loaded model; `id` names its features: weights, preprocessing and vocabulary."""

    model: CLIPModel
    processor: CLIPImageProcessor
    tokenizer: CLIPTokenizer
    id: str
    weights_sha256: str
    device: str

    @property
    def max_tokens(self) -> int:
        return self.model.config.text_config.max_position_embeddings


def load_clip(name: str | Path, device: str, key: str) -> Clip:
    """Load a CLIPModel in float32 from the hub or a folder.

    Args:
        name: hub name, or folder with weights, preprocessor and tokenizer files.
        key: the config key that named it, for the error.

    Raises:
        ConfigError: it is no CLIPModel, is incomplete, or cannot be downloaded.
    """
    model, sha256 = load_pretrained(CLIPModel, name, key)
    with readable("CLIPModel", str(name), key):
        processor = CLIPImageProcessor.from_pretrained(str(name))
        tokenizer = CLIPTokenizer.from_pretrained(str(name))
    if len(tokenizer) > model.config.text_config.vocab_size:
        raise refuse(key, name, "the tokenizer has more entries than the model's vocabulary")
    preprocessing = {k: str(v) for k, v in processor.to_dict().items()}
    identity = digest([sha256, preprocessing, tokenizer.get_vocab()])
    return Clip(model.to(device), processor, tokenizer, f"clip-{identity}", sha256, device)


def clip_network(context: Context, key: str) -> tuple[Clip, Network]:
    """The model that `metrics.<key>` names, and its image features."""

    def load() -> tuple[Clip, Network]:
        name = context.settings[key]
        what = "the toy scorer" if key == "scorer" else f"the CLIPModel {shown(name)}"
        clip = load_clip(name, context.device, key)
        size = clip.model.config.projection_dim
        described = (
            f"{size} image features of {what}, weights with SHA-256 {clip.weights_sha256[:8]}…, "
            "images resized by its own processor"
        )
        return clip, Network(
            clip.id, lambda i: image_features(clip, i), size, clip.weights_sha256, described
        )

    return context.once(("clip", key), load)


@torch.no_grad()
def image_features(clip: Clip, images: list[Image.Image]) -> np.ndarray:
    """(n, d) float32 projected image features, not normalised."""
    inputs = clip.processor(images=images, return_tensors="pt").to(clip.device)
    return _tensor(clip.model.get_image_features(**inputs)).cpu().numpy()


def text_features(context: Context, clip: Clip, texts: list[str]) -> np.ndarray:
    """(n, d) float32 projected text features, not normalised, kept as those of images are.

    Texts beyond the model's number of tokens are cut, the end token kept.
    """

    @torch.no_grad()
    def compute(positions: list[int]) -> Iterator[np.ndarray]:
        for batch in in_batches(positions, context.settings["batch_size"]):
            inputs = clip.tokenizer(
                [texts[i] for i in batch],
                padding=True,
                truncation=True,
                max_length=clip.max_tokens,
                return_tensors="pt",
            ).to(clip.device)
            features = clip.model.get_text_features(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
            )
            yield _tensor(features).cpu().numpy()

    keys = [text_key(text) for text in texts]
    return context.store(f"{clip.id}-texts").get(keys, compute, "features of the prompts").array()


def count_truncated(clip: Clip, texts: list[str]) -> int:
    """How many of the texts have more tokens than the model reads."""
    ids = clip.tokenizer(texts, verbose=False)["input_ids"]
    return sum(len(tokens) > clip.max_tokens for tokens in ids)


def _tensor(features) -> torch.Tensor:
    # Transformers 5 returns an output object whose pooler_output is the projection.
    return getattr(features, "pooler_output", features)
