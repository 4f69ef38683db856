"""The printed table: which columns, in the papers' layout, and what stands in each cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.metrics.registry import DISTANCES
from experiments.report.card import departing_rows
from experiments.report.cells import (
    ARROWS,
    DAGGER,
    DOUBLE_DAGGER,
    NONE,
    UNDECIDED,
    gflops,
    number,
    percent,
    seconds,
    setting,
)
from experiments.report.explain import explaining_columns
from experiments.report.run_folder import FEW, Row, Run, other_steps

LAYOUTS = {
    "caching": ("threshold", "caching"),
    "threshold": ("threshold",),
    "ratio": ("ratio",),
    "methods": ("threshold", "ratio", "caching"),
}
HEADS = {
    "threshold": "T", "ratio": "ratio", "caching": "caching", "steps": "steps", "width": "width",
    "height": "height", "attention": "attention", "batch": "batch",
}  # fmt: skip
TEXTS = ("caching", "attention")
DIGITS = {"psnr": 2, "ssim": 3, "identical": 0}
LONGEST_ERROR = 40  # characters in a cell; the notes have the whole


@dataclass(frozen=True)
class Table:
    """Plain, unescaped texts. Rows from `apart` on are printed below a rule."""

    heads: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    apart: int


def build_table(run: Run) -> Table:
    """One line a row of the experiment, failed ones included."""
    settings = _setting_columns(run)
    results = _result_columns(run)
    heads = ["method"] + [HEADS[key] for key in settings] + [head for head, _ in results]
    departing = departing_rows(run)
    rows = []
    for row in run.rows:
        mark = DAGGER if row.record.get("order_dependent") else ""
        mark += DOUBLE_DAGGER if row.name in departing else ""
        name = row.method + ("" if "steps" in settings else other_steps(run, row)) + mark
        cells = [name] + [setting(setting_of(row, key)) for key in settings]
        if row.failed:
            cells += [_failure(row)] + [NONE] * (len(results) - 1)
        else:
            cells += [cell(row) for _, cell in results]
        rows.append(cells)
    numeric = [False] + [key not in TEXTS for key in settings] + [True] * len(results)
    return Table(heads, numeric, rows, sum(not row.apart for row in run.rows))


def _setting_columns(run: Run) -> list[str]:
    """The layout's settings, and any other in which rows differ; T first, as in the papers."""
    wanted = LAYOUTS.get(run.experiment.get("layout"), LAYOUTS["methods"])
    keys = []
    for key in HEADS:
        # Rows apart say their number of steps beside their name and need no column for it.
        rows = [row for row in run.rows if row.columns and not (row.apart and key == "steps")]
        values = {str(setting_of(row, key)) for row in rows}
        if key in wanted or len(values - {"None", NONE}) > 1:
            keys.append(key)
    return keys


def setting_of(row: Row, key: str) -> object:
    """A row's setting; a batch that was found by trying is known to the timing."""
    if key == "batch" and row.timing.get("batch_size"):
        return row.timing["batch_size"]
    return row.columns.get(key)


def _result_columns(run: Run) -> list[tuple[str, Callable[[Row], str]]]:
    columns: list[tuple[str, Callable[[Row], str]]] = []
    published = bool(run.experiment.get("published"))
    fid_published = ("FID published", lambda row: number(row.published and row.published.fid))
    beside = None
    for column in run.quality_columns():
        head = column + ARROWS[run.better(column)]
        if run.metric(column) == "identical":
            if not any(run.figure(row, column) for row in run.rows if row is not run.baseline):
                continue  # that the baseline is identical to itself fills no column
            head = "identical"
        columns.append((head, _quality_cell(run, column)))
        if run.metric(column) in DISTANCES:
            beside = len(columns)
    if not columns:
        columns.append(("quality", lambda row: NONE))
    if published:
        columns.insert(len(columns) if beside is None else beside, fid_published)
    columns.append(("s/im ↓", lambda row: seconds(row.timing.get("s_per_image"))))
    if published:
        columns.append(
            (
                "s/im published",
                lambda row: number(row.published and row.published.seconds_per_image),
            )
        )
    columns.append(("speed-up ↑", lambda row: _speedup(run, row)))
    columns.append(("merged", lambda row: percent(row.merged_share)))
    columns.append(("GFLOPs/im", lambda row: gflops(row.timing.get("gflops_per_image"))))
    columns += explaining_columns(run)
    environment = (run.timing or {}).get("environment") or {}
    # A CPU process's high-water mark is no property of a row: it has all rows' models in it.
    if environment.get("device_type") == "cuda":
        columns.append(("GiB peak", lambda row: number(row.timing.get("peak_memory_gb"))))
    columns.append(("n", lambda row: str(run.images(row))))
    return columns


def _quality_cell(run: Run, column: str) -> Callable[[Row], str]:
    metric = run.metric(column)
    digits = DIGITS.get(metric, 2)

    def cell(row: Row) -> str:
        value, interval = run.figure(row, column), run.interval(row, column)
        if value is None:
            return NONE
        text = f"{value:.{digits}f}"
        if interval is not None:
            text += f" ± {interval.half:.{digits}f}"
        text += "".join(
            f" ({_short(what)} {v:.{digits}f})" for what, v in run.beside(row, column).items()
        )
        difference = run.difference(row, column)
        if difference is not None and not difference.excludes(0):
            text += f" {UNDECIDED}"
        n = run.count(row, column)
        if metric in DISTANCES and n is not None and n < FEW:
            text += f" (n={n})"
        return text

    return cell


def _short(what: str) -> str:
    """`5th percentile` to `p5`, `std over 100 subsets` to `std`."""
    first = what.split()[0]
    return f"p{first.removesuffix('th')}" if "percentile" in what else first


def _failure(row: Row) -> str:
    error = " ".join(str(row.record.get("error") or "unknown").split())
    cut = error if len(error) <= LONGEST_ERROR else error[: LONGEST_ERROR - 1] + "…"
    return f"failed: {cut}"


def _speedup(run: Run, row: Row) -> str:
    value = row.timing.get("speedup")
    if value is None:
        return NONE
    low, high = row.timing.get("speedup_low"), row.timing.get("speedup_high")
    is_reference = row.name == (row.record.get("against") or run.experiment.get("baseline"))
    spread = "" if is_reference or low is None or high is None else f" ({low:.2f}–{high:.2f})"
    return f"{value:.2f}×{spread}"
