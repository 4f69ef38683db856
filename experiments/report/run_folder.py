"""What the stages left in a run's folder, read without demanding that all of them ran.

experiment.json   name, title, benchmark, layout, swept, published, baseline, rows, apart, notes,
                  columns, equivalents
rows/<row>.json   status, error, columns (method, threshold, ratio, caching, interval, steps),
                  images, merged_share, order_dependent, settings
manifest.json     prompts (text, seed, source), rule, truncated, token_limit
painted.json      {row: image paths, absolute or relative to the folder}
metrics.json, per_image.csv   see `experiments.metrics.scores`
timing.json       environment, batch_size, repeats, rows {row: figures}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.common.errors import bad
from experiments.common.files import read_json
from experiments.common.uncertainty import Interval, by_row, replicates_interval
from experiments.metrics.scores import Scores
from experiments.report.published import Published, find_published, load_published

FEW = 2048  # images; below, covariances of 2,048 features have no full rank


@dataclass(frozen=True)
class Row:
    """One line of the table: its record, and what each stage found for it."""

    name: str
    record: dict
    apart: bool
    timing: dict
    published: Published | None

    @property
    def failed(self) -> bool:
        return self.record["status"] == "failed"

    @property
    def columns(self) -> dict:
        return self.record.get("columns") or {}

    @property
    def merged_share(self) -> float | None:
        share = self.record.get("merged_share")
        return self.timing.get("merged_share") if share is None else share

    @property
    def method(self) -> str:
        return str(self.columns.get("method") or self.name)


@dataclass(frozen=True)
class Equivalent:
    """The baseline at a row's time: `name` of its painting, its number of steps, and the paired
    differences row minus painting by metric; empty where it was not painted."""

    name: str
    steps: int
    differences: dict[str, Interval]


@dataclass(frozen=True)
class Run:
    """A run's folder. `scores` and `timing` are None where that stage was not run."""

    folder: Path
    experiment: dict
    rows: tuple[Row, ...]
    manifest: dict
    painted: dict[str, list[Path]]
    scores: Scores | None
    timing: dict | None
    means: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, Interval]]
    equivalents: dict[str, dict[str, Equivalent]]

    @property
    def extra_columns(self) -> list[str]:
        """Of `experiments.report.columns.COLUMNS`, those that the table was asked for."""
        return self.experiment.get("columns") or []

    @property
    def baseline(self) -> Row | None:
        name = self.experiment.get("baseline")
        return next((row for row in self.rows if row.name == name), None)

    def figure(self, row: Row, column: str) -> float | int | None:
        return None if self.scores is None else self.scores.figures.get(row.name, {}).get(column)

    def interval(self, row: Row, column: str) -> Interval | None:
        """95 % interval of a figure: over prompts for a mean, over replicates for a distance."""
        if self.scores is None:
            return None
        replicates = self.scores.replicates.get(row.name, {}).get(column)
        if replicates:
            return replicates_interval(replicates)
        return self.means.get(row.name, {}).get(self.metric(column))

    def difference(self, row: Row, column: str) -> Interval | None:
        """95 % interval of the paired difference from the baseline row, of a mean over images."""
        return self.differences.get(row.name, {}).get(self.metric(column))

    def beside(self, row: Row, column: str) -> dict[str, float]:
        """Further figures of a column: its tail, or a deviation over subsets."""
        return {} if self.scores is None else self.scores.beside.get(row.name, {}).get(column, {})

    def count(self, row: Row, column: str) -> int | None:
        return None if self.scores is None else self.scores.counts.get(row.name, {}).get(column)

    def images(self, row: Row) -> int:
        """Images behind the row's figures, or else painted ones."""
        counts = [] if self.scores is None else self.scores.counts.get(row.name, {}).values()
        return max(counts, default=0) or row.record.get("images") or 0

    def quality_columns(self) -> list[str]:
        """Columns of the scores in the order of the table.

        Distances lead as in the papers, but with few images they say least: then PSNR, SSIM and
        CLIP score lead.
        """
        if self.scores is None:
            return []
        known = self.scores.protocol["columns"]
        few = any(0 < self.images(row) < FEW for row in self.rows)
        leading = ("psnr", "ssim", "identical", "clip_toy", "clip_score", "fd_toy", "fid")
        order = leading if few else ("fid", "fd_toy", "clip_score", "clip_toy", "psnr", "ssim")

        def rank(column: str) -> int:
            metric = known[column]["metric"]
            return order.index(metric) if metric in order else len(order)

        return sorted(known, key=rank)

    def metric(self, column: str) -> str:
        return self.scores.protocol["columns"][column]["metric"]

    def better(self, column: str) -> str | None:
        return self.scores.protocol["columns"][column]["better"]


def existing_run(value: object) -> Path:
    """The folder that a command's `run=` names.

    Raises:
        ConfigError: it is no run's folder.
    """
    if value is None or not (Path(str(value)) / "experiment.json").is_file():
        allowed = "must be the folder of an experiment's run, with experiment.json"
        raise bad("run", value, allowed)
    return Path(str(value))


def read_run(folder: Path) -> Run:
    """Read what is there; FileNotFoundError where there is no experiment.json."""
    experiment = read_json(folder / "experiment.json")
    timing = _read(folder / "timing.json", None)
    try:
        scores = Scores.load(folder)
    except FileNotFoundError:
        scores = None
    apart = experiment.get("apart") or []
    names = experiment["rows"]
    published = load_published(experiment["published"]) if experiment.get("published") else None
    rows = []
    for name in [n for n in names if n not in apart] + [n for n in names if n in apart]:
        record = _read(folder / "rows" / f"{name}.json", {"status": "not run"})
        figures = (timing or {}).get("rows", {}).get(name) or {}
        match = None
        if published is not None and name not in apart:
            is_baseline = name == experiment.get("baseline")
            match = find_published(published, record.get("columns") or {}, is_baseline)
        rows.append(Row(name, record, name in apart, figures, match))
    painted = {
        name: [folder / path for path in paths]  # an absolute path stays one
        for name, paths in _read(folder / "painted.json", {}).items()
    }
    manifest = _read(folder / "manifest.json", {})
    means, differences, equivalents = {}, {}, {}
    if scores is not None:
        metrics = [c["metric"] for c in scores.protocol["columns"].values()]
        metrics = [m for m in metrics if m in scores.per_image and m != "identical"]
        means, differences = by_row(scores.per_image, metrics, experiment.get("baseline"))
        equivalents = {
            row: {
                scheduler: equivalent(scores.per_image, metrics, row, found)
                for scheduler, found in by_scheduler.items()
            }
            for row, by_scheduler in (experiment.get("equivalents") or {}).items()
        }
    return Run(
        folder, experiment, tuple(rows), manifest, painted, scores, timing, means, differences,
        equivalents,
    )  # fmt: skip


def equivalent(
    per_image: pd.DataFrame, metrics: list[str], row: str, found: dict[str, Any]
) -> Equivalent:
    both = per_image[per_image["row"].isin([row, found["row"]])]
    if both["row"].nunique() < 2:
        return Equivalent(found["row"], found["steps"], {})
    _, differences = by_row(both, metrics, found["row"])
    return Equivalent(found["row"], found["steps"], differences[row])


def row_label(run: Run, row: Row) -> str:
    """A short name for plots: the method and what sets its row apart."""
    columns, parts = row.columns, [row.method]
    if columns.get("threshold") is not None:
        parts.append(f"T={columns['threshold']:g}")
    if columns.get("ratio") is not None:
        parts.append(f"r={columns['ratio']:g}")
    caching = {other.columns.get("caching") for other in run.rows} - {None, "—"}
    if len(caching) > 1 and columns.get("caching") in caching:
        parts.append(str(columns["caching"]))
    return " ".join(parts) + other_steps(run, row)


def other_steps(run: Run, row: Row) -> str:
    """` (40 steps)` where a row takes another number than the baseline, else nothing."""
    steps = row.columns.get("steps")
    if run.baseline is None or steps is None or steps == run.baseline.columns.get("steps"):
        return ""
    return f" ({steps})" if "step" in row.method.lower() else f" ({steps} steps)"


def _read(path: Path, otherwise: Any) -> Any:
    try:
        return read_json(path)
    except FileNotFoundError:
        return otherwise
