"""Quality against seconds, and quality and speed along the swept key, as PNG and PDF.

Matplotlib without a display. Colours are Okabe and Ito's, which stay apart for colour-blind
readers; every series has its own marker as well.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from experiments.common.files import write_atomically
from experiments.report.cells import ARROWS
from experiments.report.escape import one_line
from experiments.report.run_folder import Row, Run, row_label
from experiments.report.table import setting_of

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of every glyph of a PDF

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#666666"
PANELS = 4
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "pdf.fonttype": 42,
    # Captions and labels are other people's text: a dollar sign starts no formula.
    "text.parse_math": False,
    "figure.dpi": 150,  # the same as when saved: widths of texts do not scale exactly
    "savefig.dpi": 150,
}
AXES = {
    "interval": "matches every k evaluations",
    "threshold": "similarity threshold T",
    "ratio": "share of tokens merged, ratio r",
    "height": "image height, pixels",
    "batch": "images a batch",
}


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write `<name>.png` and `<name>.pdf`, the same bytes for the same figure."""
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        for kind, given in metadata.items():
            write_atomically(
                folder / f"{name}.{kind}",
                lambda beside, kind=kind, given=given: figure.savefig(
                    beside, format=kind, metadata=given, bbox_inches="tight"
                ),
            )
    plt.close(figure)


def plot_against_seconds(run: Run, folder: Path) -> None:
    """`quality_against_seconds`: a panel a quality column, a labelled point a row.

    Bars are the 95 % interval of the quality and the range of the repeats' seconds. A panel in
    which the baseline has no value (PSNR with itself) shows its seconds as a line. Nothing is
    written while either stage is missing.
    """
    timed = [row for row in run.rows if row.timing.get("s_per_image") and not row.failed]
    columns = [
        c for c in plotted_columns(run) if any(run.figure(row, c) is not None for row in timed)
    ]
    if not columns:
        return
    with plt.rc_context(STYLE):
        figure, panels = _panels(len(columns), run, width=5.6, height=4.0)
        colour_of = _colours(_kind(row) for row in timed)
        for axes, column in zip(panels, columns, strict=True):
            points, labels, bars = [], [], []
            for row in timed:
                x, y = row.timing["s_per_image"], run.figure(row, column)
                colour, marker = colour_of[_kind(row)]
                if y is None:
                    if row is run.baseline:
                        axes.axvline(x, color=GREY, linewidth=1, linestyle="--")
                        axes.annotate(
                            "baseline", (x, 1), xycoords=("data", "axes fraction"),
                            xytext=(0, 1), textcoords="offset points",
                            ha="center", va="bottom", color=GREY, fontsize=7.5,
                        )  # fmt: skip
                    continue
                repeats = row.timing.get("s_per_image_all") or [x]
                interval = run.interval(row, column)
                error = interval.half if interval is not None else 0
                low, high = min(*repeats, x), max(*repeats, x)
                axes.plot([low, high], [y, y], color=colour, linewidth=0.8, alpha=0.4)
                axes.plot([x, x], [y - error, y + error], color=colour, linewidth=0.8, alpha=0.4)
                axes.plot(
                    x, y, marker, color=colour, markersize=6,
                    markeredgecolor="white", markeredgewidth=0.6,
                )  # fmt: skip
                bars += [((low, y), (high, y)), ((x, y - error), (x, y + error))]
                points.append((x, y))
                labels.append(one_line(row_label(run, row)))
            axes.set_xlabel("seconds an image")
            axes.set_ylabel(column + ARROWS[run.better(column)])
            axes.margins(0.16)
            label_points(axes, points, labels, bars)
        save(figure, folder, "quality_against_seconds")


def plot_along_swept_key(run: Run, folder: Path) -> None:
    """`along_<key>`: quality, seconds an image and merged share along the swept key.

    A line for each combination of the other settings; the baseline and rows apart are horizontal
    lines. Nothing is written where the experiment sweeps no key.
    """
    key = run.experiment.get("swept")
    if not key:
        return
    series, fixed = along_swept_key(run, key), fixed_rows(run)
    panels_of = panels_along(run, series)
    if not panels_of:
        return
    swept = [row for rows in series.values() for row in rows]
    ticks = sorted({float(setting_of(row, key)) for row in swept})
    wide = ticks[0] > 0 and ticks[-1] / ticks[0] > 6
    with plt.rc_context(STYLE):
        figure, panels = _panels(len(panels_of), run, width=3.7, height=3.0, columns=3)
        for axes, (title, of) in zip(panels, panels_of, strict=True):
            for (name, rows), (colour, marker) in zip(
                series.items(), _colours(series).values(), strict=True
            ):
                known = [(setting_of(row, key), of(row)) for row in rows if of(row) is not None]
                axes.plot(
                    *zip(*known, strict=True), color=colour, marker=marker, label=name,
                    markersize=5, linewidth=1.5, markeredgecolor="white", markeredgewidth=0.6,
                ) if known else None  # fmt: skip
            for row, style in zip(fixed, ("--", ":", "-."), strict=False):
                if of(row) is not None:
                    label = one_line(row_label(run, row))
                    axes.axhline(of(row), color=GREY, linewidth=1, linestyle=style, label=label)
            axes.set_xscale("log" if wide else "linear")
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
            axes.set_xlabel(AXES.get(key, key))
            axes.set_ylabel(title)
            axes.margins(y=0.12)
        fixed_names = [one_line(row_label(run, row)) for row in fixed]
        entries = dict.fromkeys([*series, *fixed_names])  # in this order, whichever panel has them
        for axes in panels:
            handles, names = axes.get_legend_handles_labels()
            entries |= dict(zip(names, handles, strict=True))
        entries = {name: handle for name, handle in entries.items() if handle is not None}
        figure.legend(
            entries.values(), entries.keys(), loc="upper center", bbox_to_anchor=(0.5, 0),
            ncols=min(4, len(entries)), frameon=False,
        )  # fmt: skip
        save(figure, folder, f"along_{key}")


def label_points(
    axes: Axes,
    points: list[tuple[float, float]],
    labels: list[str],
    bars: list[tuple[tuple[float, float], tuple[float, float]]],
) -> None:
    """Write each label near its point, where it covers no point, no other label and no bar.

    Places are tried outwards; one that is not beside its point gets a thin line to it.

    Args:
        points: x, y in data coordinates.
        labels: as many.
        bars: ends of straight lines to keep clear of, which counts less than the others.
    """
    figure = axes.figure
    figure.canvas.draw()  # layout and limits must be final before pixels mean anything
    scale = figure.dpi / 72
    inside = axes.get_window_extent()
    pixels = [axes.transData.transform(point) for point in points]
    side = 9 * scale
    taken = [Bbox.from_bounds(x - side / 2, y - side / 2, side, side) for x, y in pixels]
    lines = [Bbox(axes.transData.transform(bar)).padded(0.7 * scale) for bar in bars]
    # Crowded points first: they have the fewest free places.
    crowding = [-sum(np.hypot(*(p - q)) < 60 * scale for q in pixels) for p in pixels]
    for i in sorted(range(len(points)), key=lambda i: (crowding[i], i)):
        text = axes.text(0, 0, labels[i], fontsize=7.5, color="#222222", zorder=5)
        extent = text.get_window_extent()
        text.remove()
        width, height = extent.width, extent.height
        best = None
        for step, angle in _places():
            radius = step * scale
            dx, dy = math.cos(angle), math.sin(angle)
            x = pixels[i][0] + radius * dx + width * (dx - 1) / 2
            y = pixels[i][1] + radius * dy + height * (dy - 1) / 2
            box = Bbox.from_bounds(x, y, width, height)
            cost = 20 * sum(_overlap(box, other) for other in taken)
            cost += 20 * (width * height - _overlap(box, inside))
            cost += sum(_overlap(box, line) for line in lines)
            if best is None or cost < best[0] - 1e-6:
                best = (cost, step, dx, dy, box)
            if cost < 1e-6:
                break
        _, step, dx, dy, box = best
        taken.append(box)
        axes.annotate(
            labels[i], points[i], textcoords="offset points", fontsize=7.5, color="#222222",
            xytext=((box.x0 - pixels[i][0]) / scale, (box.y0 - pixels[i][1]) / scale), zorder=5,
        )  # fmt: skip
        if step > 16:
            end = (step - 1) * dx, (step - 1) * dy
            axes.annotate(
                "", points[i], xytext=end, textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.6,
                            "shrinkA": 0, "shrinkB": 4},
            )  # fmt: skip


def _places() -> Iterable[tuple[float, float]]:
    for step in (7, 10, 14, 22, 32, 44, 58, 74):
        for eighth in (1, 7, 3, 5, 0, 4, 2, 6):
            yield step, eighth * math.pi / 4


def _overlap(one: Bbox, other: Bbox) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(0.0, width) * max(0.0, height)


def _kind(row: Row) -> tuple:
    """Rows that differ only in their schedule share a colour."""
    return row.method, row.columns.get("threshold"), row.columns.get("ratio")


def plotted_columns(run: Run) -> list[str]:
    """The first quality columns of the table, as many as a figure has room for."""
    return [c for c in run.quality_columns() if run.metric(c) != "identical"][:PANELS]


def _figure_of(run: Run, column: str):
    return lambda row: run.figure(row, column)


def _panels(
    count: int, run: Run, width: float, height: float, columns: int = 2
) -> tuple[Figure, list[Axes]]:
    columns = min(columns, count)
    lines = math.ceil(count / columns)
    figure, panels = plt.subplots(
        lines, columns, figsize=(width * columns, height * lines), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    flat = list(panels.flat)
    for axes in flat[count:]:
        axes.set_visible(False)
    title = run.experiment.get("title") or run.experiment["name"]
    n = sorted({run.images(row) for row in run.rows if not row.failed})
    images = f"{n[0]}" if len(n) == 1 else f"{n[0]}–{n[-1]}" if n else "no"
    benchmark = run.experiment.get("benchmark", "")
    figure.suptitle(one_line(f"{title} ({benchmark}, {images} images a row)"), fontsize=10)
    return figure, flat[:count]


def _colours(names: Iterable) -> dict:
    unique = list(dict.fromkeys(names))
    return {
        name: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        for i, name in enumerate(unique)
    }


def fixed_rows(run: Run) -> list[Row]:
    """Rows that a sweep is compared with: the baseline and the ones apart."""
    rows = [run.baseline, *(row for row in run.rows if row.apart and row is not run.baseline)]
    return [row for row in rows if row is not None and not row.failed]


def panels_along(
    run: Run, series: dict[str, list[Row]]
) -> list[tuple[str, Callable[[Row], float | None]]]:
    """Titles and figures of the panels of a sweep in which some row has a value."""
    panels = [(c + ARROWS[run.better(c)], _figure_of(run, c)) for c in plotted_columns(run)]
    panels.append(("seconds an image ↓", lambda row: row.timing.get("s_per_image")))
    panels.append(("speed-up ↑", lambda row: row.timing.get("speedup")))
    panels.append(("share of sources merged", lambda row: row.merged_share))
    swept = [row for rows in series.values() for row in rows]
    return [(t, of) for t, of in panels if any(of(row) is not None for row in swept)]


def along_swept_key(run: Run, key: str) -> dict[str, list[Row]]:
    """{name: rows along the key} by the method and its other settings."""
    others = [k for k in ("threshold", "ratio", "caching") if k != key]
    if key == "interval":
        others.remove("caching")  # says the interval again
    found: dict[tuple, list[Row]] = {}
    for row in run.rows:
        numeric = isinstance(setting_of(row, key), (int, float))
        if row.failed or row.apart or row is run.baseline or not numeric:
            continue
        group = (row.method, *(row.columns.get(k) for k in others))
        found.setdefault(group, []).append(row)
    series = {}
    for (method, *values), rows in found.items():
        shown = {
            "threshold": "T={:g}",
            "ratio": "r={:g}",
            "caching": "{}",
        }
        parts = [
            shown[k].format(v)
            for k, v in zip(others, values, strict=True)
            if v is not None and v != "—"
        ]
        name = one_line(" ".join([method, *parts]))
        series[name] = sorted(rows, key=lambda row: setting_of(row, key))
    return series
