"""FID as pytorch-fid computes it: its network, and its resize without antialiasing."""

from __future__ import annotations

from experiments.metrics.context import Context, Network
from experiments.metrics.distance import add_distance
from experiments.metrics.inception_pytorch_fid import pytorch_fid_column, pytorch_fid_network
from experiments.metrics.reference import reference


def network(context: Context) -> Network:
    """Whose features it compares."""
    return pytorch_fid_network(context)


def measure(context: Context) -> None:
    """Add each row's distance to `metrics.reference`, lower is better."""
    network = pytorch_fid_network(context)
    column = pytorch_fid_column(network.sha256)
    add_distance(context, network, column, "fid_pytorch_fid", reference(context, network))
