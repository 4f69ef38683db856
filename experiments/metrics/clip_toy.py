"""CLIP (toy): 100·cos between image and prompt in the toy world's scorer."""

from __future__ import annotations

from experiments.metrics.clip_model import clip_network
from experiments.metrics.clip_score import add_clip_score
from experiments.metrics.context import Context, Network


def network(context: Context) -> Network:
    """Whose features it compares."""
    return clip_network(context, "scorer")[1]


def measure(context: Context) -> None:
    """Add each row's mean score, higher is better, and the values by image."""
    add_clip_score(context, "scorer", "CLIP (toy)", "clip_toy", "cosine100")
