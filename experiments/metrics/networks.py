"""Which network each metric takes its features from."""

from __future__ import annotations

from experiments.metrics.clip_model import clip_network
from experiments.metrics.context import Context, Network
from experiments.metrics.fd_dinov2 import dinov2_network
from experiments.metrics.inception import inception
from experiments.metrics.inception_pytorch_fid import pytorch_fid_network
from experiments.metrics.prc import prc_network


def network_of(context: Context, metric: str) -> Network | None:
    """None for metrics that compare pixels with the baseline's."""
    match metric:
        case "fid" | "kid" | "isc" | "fid_to_baseline":
            return inception(context)[1]
        case "fid_pytorch_fid":
            return pytorch_fid_network(context)
        case "prc":
            return prc_network(context)
        case "fd_clip":
            return clip_network(context, "fd_clip_model")[1]
        case "fd_dinov2":
            return dinov2_network(context)
        case "clip_score":
            return clip_network(context, "clip_model")[1]
        case "clip_toy" | "fd_toy":
            return clip_network(context, "scorer")[1]
    return None
