"""Pixel comparisons with the baseline's image of the same prompt and seed, through the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torchmetrics.functional.image import (
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

from experiments.evaluate.features import cached_features, in_batches
from experiments.evaluate.images import read_image, to_tensor
from experiments.evaluate.painted import stamps
from experiments.evaluate.scores import Scores
from experiments.store import Painted

IDENTICAL = "identical images"
PSNR, SSIM, SAME = range(3)


def add_paired(
    column: str,
    metric: str,
    which: int,
    rows: list[Painted],
    baseline: Painted | None,
    settings: dict,
    cache: Path,
    device: str,
    scores: Scores,
) -> None:
    """Add one of the comparisons: its mean over images that differ, and the identical count."""
    if baseline is None:
        scores.notes.append(f"{column}: left out, there are no images of the baseline row.")
        return
    scores.add_column(column, metric, "higher")
    for row in rows:
        values = compare(row, baseline, settings["batch_size"], cache, device, scores.notes)
        scores.add_mean(row.row, column, values[:, which])
        scores.add_per_image(row.row, metric, values[:, which])
        if IDENTICAL not in scores.figures[row.row]:
            same = values[:, SAME]
            compared = int(np.isfinite(same).sum())
            scores.add(row.row, IDENTICAL, int(np.nansum(same)), compared)
            scores.add_per_image(row.row, "identical", same)
            if compared < len(values):
                scores.notes.append(
                    f"Row {row.row}: {len(values) - compared} images have no counterpart in the "
                    "baseline row and are left out of PSNR and SSIM."
                )
    if IDENTICAL not in scores.protocol["columns"]:
        scores.add_column(IDENTICAL, "identical", None)
        scores.notes.append(
            "PSNR and SSIM: against the baseline row's image of the same prompt and seed, means "
            "over the images that differ from it; identical ones are counted apart."
        )


def compare(
    row: Painted,
    baseline: Painted,
    batch_size: int,
    cache: Path,
    device: str,
    notes: list[str],
) -> np.ndarray:
    """(n, 3): PSNR in dB, SSIM, and 1 where the images are identical, else 0.

    PSNR and SSIM of identical images are NaN, not infinity and 1: they would swamp a mean. All
    three are NaN where the baseline lacks the prompt and seed.
    """
    values = np.full((len(row.prompts), 3), np.nan, np.float32)
    if row.painter == baseline.painter:
        shared = {p.key for p in baseline.prompts}
        values[[i for i, p in enumerate(row.prompts) if p.key in shared], SAME] = 1
        return values
    positions = {p.key: i for i, p in enumerate(baseline.prompts)}
    paired = [(i, positions[p.key]) for i, p in enumerate(row.prompts) if p.key in positions]
    mine, theirs = stamps(row), stamps(baseline)

    def compute(todo: list[int]) -> Iterator[np.ndarray]:
        for batch in in_batches(todo, batch_size):
            pairs = [(row.images[paired[k][0]], baseline.images[paired[k][1]]) for k in batch]
            yield np.concatenate([_compare(*pair, row.row, device) for pair in pairs])

    found = cached_features(
        cache / "psnr-ssim" / f"{row.painter}-against-{baseline.painter}.npz",
        [row.prompts[i].key for i, _ in paired],
        [f"{mine[i]} {theirs[j]}" for i, j in paired],
        compute,
        notes,
        f"PSNR and SSIM of {row.row}",
    )
    if paired:
        values[[i for i, _ in paired]] = found
    return values


def _compare(path: Path, baseline_path: Path, row: str, device: str) -> np.ndarray:
    """(1, 3) as above, by torchmetrics on RGB values from 0 to 1."""
    image, target = read_image(path), read_image(baseline_path)
    if image.size != target.size:
        raise ValueError(
            f"row {row}: {path} has {image.size[0]} x {image.size[1]} pixels, the baseline's "
            f"image {target.size[0]} x {target.size[1]}"
        )
    one, other = to_tensor(image), to_tensor(target)
    if torch.equal(one, other):
        return np.array([[np.nan, np.nan, 1]])
    one, other = (x.to(device)[None].float() / 255 for x in (one, other))
    psnr = peak_signal_noise_ratio(one, other, data_range=1.0)
    # float32: torch's convolution in float64 is 25 times slower on a CPU for the fifth decimal.
    ssim = structural_similarity_index_measure(one, other, data_range=1.0)
    return np.array([[float(psnr), float(ssim), 0]])
