"""How many pairs of one evaluation still match at a later one (CA-ToMe's first observation: pairs
repeat between adjacent steps, so that a match can be re-used)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig

import catome
from experiments.analysis.panels import block_panels, short_names
from experiments.analysis.trace import merging_of, watched
from experiments.painting.store import Prompt
from experiments.report.plots import COLOURS, MARKERS, save

SUMMARISED = (1, 2, 5, 10, 20)  # evaluations apart


def measure(cfg: DictConfig, prompts: list[Prompt], folder: Path) -> pd.DataFrame:
    """Write `pair_overlap.csv`, `plots/pair_overlap` and `plots/pair_overlap_by_distance`.

    Pairs are (source, destination) that the method's selection would merge. The destinations are
    the corners of the cells throughout: drawn anew at each evaluation, even equal features would
    share only a quarter of their destinations. The CSV has a line a block and pair of evaluations
    `step` < `other`: the Jaccard index of their sets of pairs, mean over images.
    """
    merging = replace(merging_of(cfg), destinations="corner")
    sums: dict[str, torch.Tensor] = {}
    rows = 0
    for records in watched(cfg, prompts, merging, catome.Recorder(pairs=True), "pair_overlap"):
        by_block: dict[str, list[catome.Record]] = {}
        for record in records:
            by_block.setdefault(record.block, []).append(record)
        for block, own in by_block.items():
            found = jaccard(torch.stack([r.pairs for r in own]))
            sums[block] = sums.get(block, 0) + found.sum(dim=2)
            count = found.shape[2]
        rows += count
    overlaps = {block: (total / rows).numpy() for block, total in sums.items()}
    lines = [
        {"block": block, "step": s, "other": t, "jaccard": matrix[s, t]}
        for block, matrix in overlaps.items()
        for s in range(len(matrix))
        for t in range(s + 1, len(matrix))
    ]
    pd.DataFrame(lines).to_csv(folder / "pair_overlap.csv", index=False)
    plot_matrices(overlaps, folder / "plots")
    plot_by_distance(overlaps, folder / "plots")
    return summary(overlaps)


def jaccard(assignments: torch.Tensor) -> torch.Tensor:
    """Jaccard index of the pairs of every two evaluations, 0 where neither has any.

    Args:
        assignments: (S, B, N) the token each token is merged into, itself if not merged.

    Returns:
        (S, S, B) from 0 to 1.
    """
    paired = assignments != torch.arange(assignments.shape[2], dtype=assignments.dtype)
    sizes = paired.sum(dim=2)
    out = torch.zeros(len(assignments), *sizes.shape)
    for s in range(len(assignments)):
        shared = (paired[s] & (assignments[s] == assignments)).sum(dim=2)
        out[s] = shared / (sizes[s] + sizes - shared).clamp(min=1)
    return out


def by_distance(matrix: np.ndarray) -> np.ndarray:
    """(S - 1,) mean overlap of evaluations 1, 2, ... apart."""
    return np.array([np.diagonal(matrix, d).mean() for d in range(1, len(matrix))])


def summary(overlaps: dict[str, np.ndarray]) -> pd.DataFrame:
    """A line a block: the mean overlap of evaluations so far apart."""
    lines = []
    for name, matrix in zip(short_names(overlaps), overlaps.values(), strict=True):
        means = by_distance(matrix)
        apart = {f"{d} apart": f"{means[d - 1]:.2f}" for d in SUMMARISED if d <= len(means)}
        lines.append({"block": name, **apart})
    return pd.DataFrame(lines)


def plot_matrices(overlaps: dict[str, np.ndarray], folder: Path) -> None:
    """A panel a block: the overlap of every two evaluations."""
    figure, panels = block_panels(overlaps, "evaluation", "evaluation")
    for axes, matrix in zip(panels, overlaps.values(), strict=True):
        mesh = axes.imshow(matrix, origin="lower", cmap="viridis", vmin=0, vmax=1)
    figure.colorbar(mesh, ax=panels, label="Jaccard index of the pairs", shrink=0.8)
    save(figure, folder, "pair_overlap")


def plot_by_distance(overlaps: dict[str, np.ndarray], folder: Path) -> None:
    """One panel: mean overlap against the number of evaluations between, a line a block."""
    figure, (axes,) = block_panels([""], "evaluations apart", "Jaccard index of the pairs")
    for i, (name, matrix) in enumerate(zip(short_names(overlaps), overlaps.values(), strict=True)):
        means = by_distance(matrix)
        axes.plot(
            range(1, len(means) + 1), means, color=COLOURS[i % len(COLOURS)], label=name,
            marker=MARKERS[i % len(MARKERS)], markersize=4, markevery=5, linewidth=1.5,
        )  # fmt: skip
    axes.set_ylim(0, 1)
    axes.legend(frameon=False)
    save(figure, folder, "pair_overlap_by_distance")
