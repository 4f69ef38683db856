"""PSNR in dB against the baseline's images, by torchmetrics; higher is better."""

from __future__ import annotations

from pathlib import Path

from experiments.evaluate.paired import PSNR, add_paired
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
    add_paired("PSNR (dB)", "psnr", PSNR, rows, baseline, settings, cache, device, scores)
