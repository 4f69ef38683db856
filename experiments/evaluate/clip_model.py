"""A CLIPModel with its processor and tokenizer, and features of images and texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import AutoConfig, CLIPImageProcessor, CLIPModel, CLIPTokenizer

from experiments.evaluate.features import cached_features, in_batches
from experiments.evaluate.settings import refuse
from experiments.store import digest


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
    name = str(name)
    try:
        kind = AutoConfig.from_pretrained(name).model_type
        if kind != "clip":
            raise refuse(key, name, f"must be a CLIPModel, not a model of type {kind}")
        # Weights kept as fp16 are computed with in fp32: scores do not depend on the storage.
        model, loading = CLIPModel.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True
        )
        if loading["missing_keys"]:
            missing = sorted(loading["missing_keys"])[0]
            raise refuse(key, name, f"the weights lack {missing} and perhaps more")
        processor = CLIPImageProcessor.from_pretrained(name)
        tokenizer = CLIPTokenizer.from_pretrained(name)
    except OSError as error:
        reason = str(error).strip().splitlines()[0]
        raise refuse(key, name, f"cannot be loaded as a CLIPModel ({reason})") from error
    if len(tokenizer) > model.config.text_config.vocab_size:
        raise refuse(key, name, "the tokenizer has more entries than the model's vocabulary")
    model = model.eval().requires_grad_(False)
    weights = hashlib.sha256()
    for parameter, value in sorted(model.state_dict().items()):
        weights.update(f"{parameter} {tuple(value.shape)}".encode())
        weights.update(value.contiguous().numpy().tobytes())
    sha256 = weights.hexdigest()
    preprocessing = {k: str(v) for k, v in processor.to_dict().items()}
    identity = digest([sha256, preprocessing, tokenizer.get_vocab()])
    return Clip(model.to(device), processor, tokenizer, f"clip-{identity}", sha256, device)


@torch.no_grad()
def image_features(clip: Clip, images: list[Image.Image]) -> np.ndarray:
    """(n, d) float32 projected image features, not normalised."""
    inputs = clip.processor(images=images, return_tensors="pt").to(clip.device)
    return _tensor(clip.model.get_image_features(**inputs)).cpu().numpy()


def text_features(
    clip: Clip, texts: list[str], cache: Path, batch_size: int, notes: list[str]
) -> np.ndarray:
    """(n, d) float32 projected text features, not normalised, kept in `cache/<id>/texts.npz`.

    Texts beyond the model's number of tokens are cut, the end token kept.
    """

    @torch.no_grad()
    def compute(positions: list[int]) -> Iterator[np.ndarray]:
        for batch in in_batches(positions, batch_size):
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

    keys = [digest(text, 20) for text in texts]
    path = cache / clip.id / "texts.npz"
    return cached_features(path, keys, [""] * len(keys), compute, notes, "features of the prompts")


def count_truncated(clip: Clip, texts: list[str]) -> int:
    """How many of the texts have more tokens than the model reads."""
    ids = clip.tokenizer(texts, verbose=False)["input_ids"]
    return sum(len(tokens) > clip.max_tokens for tokens in ids)


def _tensor(features) -> torch.Tensor:
    # Transformers 5 returns an output object whose pooler_output is the projection.
    return getattr(features, "pooler_output", features)
