"""CLIP score: the cosine between the features of an image and of its prompt, scaled.

Papers on diffusion models print 100·cos; Hessel et al. 2021 (arXiv 2104.08718) define
2.5·max(cos, 0). `metrics.clip_scaling` chooses, and the scaling is in the column's name.
"""

from __future__ import annotations

import numpy as np

from experiments.metrics.clip_model import clip_network, count_truncated, text_features
from experiments.metrics.context import Context, Network
from experiments.metrics.pretrained import shown

SCALINGS = {"cosine100": "100·cos", "hessel": "2.5·max(cos, 0)"}


def network(context: Context) -> Network:
    """Whose features it compares."""
    return clip_network(context, "clip_model")[1]


def measure(context: Context) -> None:
    """Add each row's mean score, higher is better, and the values by image."""
    name, scaling = shown(context.settings["clip_model"]), context.settings["clip_scaling"]
    column = f"CLIP score ({name}, {SCALINGS[scaling]})"
    add_clip_score(context, "clip_model", column, "clip_score", scaling)


def scaled_cosines(images: np.ndarray, texts: np.ndarray, scaling: str) -> np.ndarray:
    """(n,) scores between rows of two (n, d) arrays."""
    images, texts = images.astype(np.float64), texts.astype(np.float64)
    lengths = np.linalg.norm(images, axis=1) * np.linalg.norm(texts, axis=1)
    cosines = (images * texts).sum(axis=1) / lengths
    return 2.5 * cosines.clip(0) if scaling == "hessel" else 100 * cosines


def add_clip_score(context: Context, key: str, column: str, metric: str, scaling: str) -> None:
    """Add the score with the CLIPModel that `metrics.<key>` names."""
    clip, network = clip_network(context, key)
    scores = context.scores
    scores.add_column(column, metric, "higher")
    truncated = 0
    for row in context.rows:
        prompts = [p.text for p in row.prompts]
        images = context.painted(row, network).array()
        values = scaled_cosines(images, text_features(context, clip, prompts), scaling)
        scores.add_mean(row.row, column, values)
        scores.add_per_image(row.row, metric, values)
        truncated = max(truncated, count_truncated(clip, prompts))
    cut = f"; {truncated} prompts were cut to {clip.max_tokens} tokens" if truncated else ""
    scores.notes.append(
        f"{column}: mean of {SCALINGS[scaling]} between image and prompt, {network.described}{cut}."
    )
    scores.protocol[metric] = {
        "column": column,
        "scaling": SCALINGS[scaling],
        "weights_sha256": clip.weights_sha256,
        "truncated_prompts": truncated,
    }
