"""FID: the Fréchet distance between Inception v3 features of painted images and photographs.

Heusel et al. 2017 (arXiv 1706.08500), features as torch-fidelity computes them, layer 2048 with
its imitation of TensorFlow's resize. pytorch-fid, which the published tables used, resizes
differently and gives other numbers for the same images: that is `fid_pytorch_fid`.
"""

from __future__ import annotations

from experiments.metrics.context import Context, Network
from experiments.metrics.distance import add_distance
from experiments.metrics.inception import fid_column, inception
from experiments.metrics.reference import reference


def network(context: Context) -> Network:
    """Whose features it compares."""
    return inception(context)[1]


def measure(context: Context) -> None:
    """Add each row's distance to `metrics.reference`, lower is better."""
    _, network = inception(context)
    target = reference(context, network)
    add_distance(context, network, fid_column(network.sha256), "fid", target)
