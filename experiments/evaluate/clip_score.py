"""CLIP score: 100 times the cosine between the features of an image and of its prompt.

Hessel et al. 2021 (arXiv 2104.08718) scale by 2.5 and cut at 0; papers on diffusion models print
100·cos, so the scaling is in the column's name. Nothing is cut at 0 here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.evaluate.clip_model import (
    Clip,
    count_truncated,
    image_features,
    load_clip,
    text_features,
)
from experiments.evaluate.painted import painted_features
from experiments.evaluate.scores import Scores
from experiments.store import Painted


def measure(
    rows: list[Painted],
    baseline: Painted | None,
    settings: dict,
    cache: Path,
    device: str,
    scores: Scores,
) -> None:
    """Add each row's mean score, higher is better, and the values by image."""
    name = settings["clip_model"]
    clip = load_clip(name, device, "clip_model")
    shown = name.name if isinstance(name, Path) else name
    column = f"CLIP score ({shown}, 100·cos)"
    _measure(rows, clip, column, "clip_score", settings, cache, scores)


def measure_toy(
    rows: list[Painted],
    baseline: Painted | None,
    settings: dict,
    cache: Path,
    device: str,
    scores: Scores,
) -> None:
    """The same with the toy world's scorer, as `CLIP (toy)`."""
    clip = load_clip(settings["scorer"], device, "scorer")
    _measure(rows, clip, "CLIP (toy)", "clip_toy", settings, cache, scores)


def cosines(images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """(n,) 100·cos between rows of two (n, d) arrays."""
    images, texts = images.astype(np.float64), texts.astype(np.float64)
    lengths = np.linalg.norm(images, axis=1) * np.linalg.norm(texts, axis=1)
    return 100 * (images * texts).sum(axis=1) / lengths


def _measure(rows, clip: Clip, column, metric, settings, cache, scores: Scores) -> None:
    batch_size = settings["batch_size"]
    scores.add_column(column, metric, "higher")
    truncated = 0
    for row in rows:
        images = painted_features(
            row, cache / clip.id, lambda i: image_features(clip, i), batch_size, scores.notes
        )
        prompts = [p.text for p in row.prompts]
        texts = text_features(clip, prompts, cache, batch_size, scores.notes)
        values = cosines(images, texts)
        scores.add_mean(row.row, column, values)
        scores.add_per_image(row.row, metric, values)
        truncated = max(truncated, count_truncated(clip, prompts))
    cut = f"; {truncated} prompts were cut to {clip.max_tokens} tokens" if truncated else ""
    scores.notes.append(
        f"{column}: mean of 100·cos between image and prompt, a CLIPModel whose weights have "
        f"SHA-256 {clip.weights_sha256[:8]}…, images resized by its own processor{cut}."
    )
    scores.protocol[metric] = {
        "column": column,
        "scaling": "100·cos",
        "weights_sha256": clip.weights_sha256,
        "truncated_prompts": truncated,
    }
