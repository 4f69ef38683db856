"""Where the libraries take the weights of metrics from, by config key, as they themselves say."""

from __future__ import annotations

from pathlib import Path

import torch
from pytorch_fid.inception import FID_WEIGHTS_URL
from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

from experiments.metrics import lpips, vgg16


def weight_urls(lpips_net: str) -> dict[str, str]:
    """{key of `metrics`: address}; null for that key means the file downloaded from there."""
    return {
        "inception_weights": URL_INCEPTION_V3,
        "pytorch_fid_weights": FID_WEIGHTS_URL,
        "vgg16_weights": vgg16.WEIGHTS.url,
        "lpips_backbone": lpips.WEIGHTS[lpips_net].url,
    }


def cached(url: str) -> Path:
    """Where the libraries look for a download: torch's hub folder."""
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[1]
