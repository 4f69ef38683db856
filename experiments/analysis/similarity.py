"""How similar sources are to their best destination, by step and block (CA-ToMe's second
observation: the distribution varies along both, so that no one ratio fits)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from omegaconf import DictConfig

import catome
from experiments.analysis.panels import block_panels, short_names
from experiments.analysis.trace import merging_of, watched
from experiments.painting.store import Prompt
from experiments.report.plots import save

BINS = np.linspace(-1, 1, 401)  # similarities, 0.005 apart
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHOWN = 0.005  # of a step's sources; rarer similarities do not widen the plot


def measure(cfg: DictConfig, prompts: list[Prompt], folder: Path) -> pd.DataFrame:
    """Write `similarity.csv`, `plots/similarity` and `plots/share_merged`; returns a summary.

    The CSV has a line a block and evaluation: `images`, `mean` and quantiles `q05` ... of the best
    cosine similarity over all sources and rows, and `share_T` of them that reach each threshold of
    `observe.thresholds`.
    """
    thresholds = np.asarray(list(cfg.observe.thresholds), np.float64)
    found: dict[tuple[str, int], list[np.ndarray]] = {}
    recorder = catome.Recorder(similarities=True)
    merging = replace(merging_of(cfg), select=catome.Threshold(-1), pairing="similarity")
    for records in watched(cfg, prompts, merging, recorder, "similarity"):
        for record in records:
            values = record.similarities.numpy().ravel()
            found.setdefault((record.block, record.step), []).append(values)
    lines, histograms = [], {}
    for (block, step), parts in found.items():
        values = np.concatenate(parts)
        line = {"block": block, "step": step, "images": len(prompts), "mean": values.mean()}
        quantiles = np.quantile(values, QUANTILES)
        line |= {f"q{100 * q:02.0f}": v for q, v in zip(QUANTILES, quantiles, strict=True)}
        line |= {f"share_{t:g}": (values >= t).mean() for t in thresholds}
        lines.append(line)
        histograms[block, step] = np.histogram(values, BINS)[0] / len(values)
    table = pd.DataFrame(lines)
    table.to_csv(folder / "similarity.csv", index=False)
    plot_distribution(table, histograms, folder / "plots")
    plot_shares(table, thresholds, folder / "plots")
    return summary(table, thresholds)


def summary(table: pd.DataFrame, thresholds: np.ndarray) -> pd.DataFrame:
    """A line a block: the median at the first, middle and last evaluation, the mean shares."""
    lines = []
    for name, (_, part) in zip(
        short_names(table["block"].unique()), table.groupby("block", sort=False), strict=True
    ):
        part = part.sort_values("step")
        steps = part["step"].to_numpy()
        line = {"block": name}
        for i in (0, len(part) // 2, len(part) - 1):
            line[f"median at {steps[i]}"] = f"{part['q50'].iloc[i]:.3f}"
        for t in thresholds:
            shares = part[f"share_{t:g}"]
            line[f"T {t:g} merges"] = f"{shares.mean():.0%} ({shares.min():.0%}–{shares.max():.0%})"
        lines.append(line)
    return pd.DataFrame(lines)


def plot_distribution(
    table: pd.DataFrame, histograms: dict[tuple[str, int], np.ndarray], folder: Path
) -> None:
    """A panel a block: evaluations across, similarity up, the share of sources as shade."""
    used = np.max(list(histograms.values()), axis=0) > SHOWN
    low = BINS[:-1][used].min()
    figure, panels = block_panels(table["block"].unique(), "evaluation", "best cosine similarity")
    for axes, (block, part) in zip(panels, table.groupby("block", sort=False), strict=True):
        steps = np.sort(part["step"].to_numpy())
        image = np.stack([histograms[block, s] for s in steps], axis=1)
        mesh = axes.pcolormesh(
            np.append(steps, steps[-1] + 1) - 0.5, BINS, image, cmap="viridis",
            norm="log", vmin=1e-4, vmax=1, rasterized=True,
        )  # fmt: skip
        axes.set_facecolor(plt.get_cmap("viridis")(0.0))
        median = part.sort_values("step")["q50"]
        axes.plot(steps, median, color="white", linewidth=1.5, label="median")
        axes.set_ylim(low, 1)
    panels[0].legend(loc="lower left", labelcolor="white", frameon=False)
    figure.colorbar(mesh, ax=panels, label="share of the sources", shrink=0.8)
    save(figure, folder, "similarity")


def plot_shares(table: pd.DataFrame, thresholds: np.ndarray, folder: Path) -> None:
    """A panel a block: evaluations across, thresholds up, the share merged as colour."""
    order = np.sort(thresholds)
    figure, panels = block_panels(table["block"].unique(), "evaluation", "threshold T")
    for axes, (_, part) in zip(panels, table.groupby("block", sort=False), strict=True):
        part = part.sort_values("step")
        steps = part["step"].to_numpy()
        image = part[[f"share_{t:g}" for t in order]].to_numpy().T
        mesh = axes.pcolormesh(
            np.append(steps, steps[-1] + 1) - 0.5, np.arange(len(order) + 1) - 0.5, image,
            cmap="viridis", vmin=0, vmax=1, rasterized=True,
        )  # fmt: skip
        axes.set_yticks(range(len(order)), [f"{t:g}" for t in order])
    figure.colorbar(mesh, ax=panels, label="share of the sources merged", shrink=0.8)
    save(figure, folder, "share_merged")
