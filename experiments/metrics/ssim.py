"""SSIM against the baseline's images, by torchmetrics; higher is better.

Wang et al. 2004: Gaussian window of 11 pixels with sigma 1.5, over RGB, values from 0 to 1.
"""

from __future__ import annotations

from experiments.metrics.context import Context
from experiments.metrics.psnr import add_similarity


def measure(context: Context) -> None:
    """Add each row's mean over images that differ from the baseline's."""
    add_similarity(context, "SSIM", "ssim", 1)
