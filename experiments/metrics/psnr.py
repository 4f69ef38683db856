"""PSNR in dB and, from the same pass, SSIM against the baseline's images, by torchmetrics."""

from __future__ import annotations

import numpy as np
import torch
from torchmetrics.functional.image import (
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

from experiments.metrics.context import Context
from experiments.metrics.paired import add_paired, compare, without_baseline
from experiments.painting.store import Painted


def measure(context: Context) -> None:
    """Add each row's PSNR over images that differ from the baseline's, higher is better."""
    add_similarity(context, "PSNR (dB)", "psnr", 0)


def add_similarity(context: Context, column: str, metric: str, which: int) -> None:
    """Add PSNR (0) or SSIM (1)."""
    if without_baseline(context, column):
        return

    def values(row: Painted) -> tuple[np.ndarray, np.ndarray]:
        found, same = context.once(
            ("psnr and ssim", row.row), lambda: compare(context, row, "psnr-ssim", 2, _both)
        )
        return found[:, which], same

    add_paired(context, column, metric, "higher", values)


def _both(one: torch.Tensor, other: torch.Tensor) -> np.ndarray:
    psnr = peak_signal_noise_ratio(one, other, data_range=1.0)
    # float32: torch's convolution in float64 is 25 times slower on a CPU for the fifth decimal.
    ssim = structural_similarity_index_measure(one, other, data_range=1.0)
    return np.array([float(psnr), float(ssim)])
