"""SSIM against the baseline's images, by torchmetrics; higher is better.

Wang et al. 2004: Gaussian window of 11 pixels with sigma 1.5, over RGB, values from 0 to 1.
"""

from __future__ import annotations

from pathlib import Path

from experiments.evaluate.paired import SSIM, add_paired
from experiments.evaluate.scores import Scores
from experiments.store import Painted


def measure(
    rows: list[Painted],
    baseline: Painted | None,
    settings: dict,
    cache: Path,
    device: str,
    scores: Scores,
) -> None:
    """Add each row's mean over images that differ from the baseline's."""
    add_paired("SSIM", "ssim", SSIM, rows, baseline, settings, cache, device, scores)
