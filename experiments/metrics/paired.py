"""Comparisons with the baseline's image of the same prompt and seed, each pair compared once.

They are of the images as painted, whatever `metrics.painted` does before features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from experiments.common.errors import ConfigError
from experiments.metrics.context import Context
from experiments.metrics.features import in_batches
from experiments.metrics.hashes import text_key
from experiments.metrics.images import Preparation, to_tensor
from experiments.painting.store import Painted

IDENTICAL = "identical images"
Compare = Callable[[torch.Tensor, torch.Tensor], np.ndarray]


def add_paired(
    context: Context,
    column: str,
    metric: str,
    better: str,
    values: Callable[[Painted], tuple[np.ndarray, np.ndarray]],
) -> None:
    """Add a comparison: mean over images that differ, bad tail, and the identical count.

    Args:
        better: `higher` or `lower`; the tail is the 5th percentile or the 95th.
        values: of a row, as `compare` gives them for one value a pair.
    """
    scores, tail = context.scores, 5 if better == "higher" else 95
    scores.add_column(column, metric, better)
    for row in context.rows:
        found, same = values(row)
        scores.add_mean(row.row, column, found)
        scores.add_per_image(row.row, metric, found)
        differing = found[np.isfinite(found)]
        if len(differing):
            percentile = float(np.percentile(differing.astype(np.float64), tail))
            scores.add_beside(row.row, column, f"{tail}th percentile", percentile)
        if IDENTICAL not in scores.figures[row.row]:
            compared = int(np.isfinite(same).sum())
            scores.add(row.row, IDENTICAL, int(np.nansum(same)), compared)
            scores.add_per_image(row.row, "identical", same)
            if compared < len(same):
                scores.notes.append(
                    f"Row {row.row}: {len(same) - compared} images have no counterpart in the "
                    "baseline row and are left out of the comparisons with it."
                )
    if IDENTICAL not in scores.protocol["columns"]:
        scores.add_column(IDENTICAL, "identical", None)
    scores.notes.append(
        f"{column}: against the baseline row's image of the same prompt and seed, as painted; mean "
        "over the images that differ from it (identical ones are counted apart), and their "
        f"{tail}th percentile."
    )


def without_baseline(context: Context, column: str) -> bool:
    """Whether there is nothing to compare with; a note then."""
    if context.baseline is None:
        context.notes.append(f"{column}: left out, there are no images of the baseline row.")
    return context.baseline is None


def compare(
    context: Context, row: Painted, folder: str, size: int, function: Compare
) -> tuple[np.ndarray, np.ndarray]:
    """(n, size) values of a row's pairs, and (n,) 1 where the images are identical, else 0.

    Values of identical images are NaN, not infinity and 1: they would swamp a mean. All are NaN
    where the baseline lacks the prompt and seed.

    Args:
        folder: of the kept values, among the features.
        function: of two (1, 3, height, width) float32 batches from 0 to 1, to (size,).

    Raises:
        ConfigError: a pair's images differ in size.
    """
    baseline = context.baseline
    values = np.full((len(row.prompts), size + 1), np.nan, np.float32)
    if row.painter == baseline.painter:
        shared = {p.key for p in baseline.prompts}
        values[[i for i, p in enumerate(row.prompts) if p.key in shared], size] = 1
        return values[:, :size], values[:, size]
    positions = {p.key: i for i, p in enumerate(baseline.prompts)}
    paired = [(i, positions[p.key]) for i, p in enumerate(row.prompts) if p.key in positions]
    mine, theirs = context.hashes(row), context.hashes(baseline)

    def compute(todo: list[int]) -> Iterator[np.ndarray]:
        paths = [p for k in todo for p in (row.images[paired[k][0]], baseline.images[paired[k][1]])]
        batches = context.load(paths, Preparation(), 2 * context.settings["batch_size"])
        for ks, images in zip(
            in_batches(todo, context.settings["batch_size"]), batches, strict=True
        ):
            rows = np.full((len(ks), size + 1), np.nan, np.float32)
            for line, k in enumerate(ks):
                image, target = images[2 * line : 2 * line + 2]
                if image.size != target.size:
                    raise ConfigError(
                        f"row {row.row}: {row.images[paired[k][0]]} has {image.size[0]} x "
                        f"{image.size[1]} pixels, the baseline's image {target.size[0]} x "
                        f"{target.size[1]}"
                    )
                one, other = to_tensor(image), to_tensor(target)
                rows[line, size] = torch.equal(one, other)
                if not rows[line, size]:
                    pair = (x.to(context.device)[None].float() / 255 for x in (one, other))
                    rows[line, :size] = function(*pair)
            yield rows

    keys = [text_key(mine[i], theirs[j]) for i, j in paired]
    if paired:
        found = context.store(folder).get(keys, compute, f"{folder} of {row.row}").array()
        values[[i for i, _ in paired]] = found
    return values[:, :size], values[:, size]
