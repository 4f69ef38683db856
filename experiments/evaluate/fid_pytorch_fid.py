"""FID as pytorch-fid computes it: its network, and its resize without antialiasing."""

from __future__ import annotations

from experiments.evaluate.context import Context
from experiments.evaluate.distance import add_distance
from experiments.evaluate.inception_pytorch_fid import pytorch_fid_column, pytorch_fid_network
from experiments.evaluate.reference import reference


def measure(context: Context) -> None:
    """Add each row's distance to `metrics.reference`, lower is better."""
    network = pytorch_fid_network(context)
    column = pytorch_fid_column(network.sha256)
    add_distance(context, network, column, "fid_pytorch_fid", reference(context, network))
