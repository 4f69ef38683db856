"""FD-CLIP: the Fréchet distance to the reference in a CLIPModel's image features.

Kynkäänniemi et al. 2023 (arXiv 2203.06026): Inception's features are ImageNet's classes, and a
distance in them can fall where no picture got better.
"""

from __future__ import annotations

from experiments.metrics.clip_model import clip_network
from experiments.metrics.context import Context, Network
from experiments.metrics.distance import add_distance
from experiments.metrics.pretrained import shown
from experiments.metrics.reference import reference


def network(context: Context) -> Network:
    """Whose features it compares."""
    return clip_network(context, "fd_clip_model")[1]


def measure(context: Context) -> None:
    """Add each row's distance to `metrics.reference`, lower is better."""
    name = shown(context.settings["fd_clip_model"])
    _, network = clip_network(context, "fd_clip_model")
    target = reference(context, network)
    add_distance(context, network, f"FD-CLIP ({name})", "fd_clip", target)
