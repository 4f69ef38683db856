"""Interactive plots of the page: quality against seconds with the Pareto front, and sweeps."""

from __future__ import annotations

import math

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from experiments.report.cells import ARROWS
from experiments.report.plots import (
    AXES,
    COLOURS,
    GREY,
    along_swept_key,
    fixed_rows,
    panels_along,
    plotted_columns,
)
from experiments.report.run_folder import Row, Run, row_label
from experiments.report.table import setting_of

SWEEP = "Along the swept key"
COLUMNS = 3  # panels of the sweep side by side
LAYOUT = {
    "template": "simple_white",
    "height": 380,
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 70, "r": 20, "t": 40, "b": 60},
    "hoverlabel": {"align": "left"},
}


def pareto_front(points: list[tuple[float, float]], better: str) -> list[int]:
    """Positions of points that no other is at least as fast and at least as good as, by seconds.

    Args:
        points: seconds (lower is better) and quality.
        better: which quality is: `higher` or `lower`.
    """
    sign = 1 if better == "higher" else -1
    front, best = [], float("-inf")
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -sign * points[i][1])):
        if sign * points[i][1] > best:
            front.append(i)
            best = sign * points[i][1]
    return front


def charts_of(run: Run) -> list[tuple[str, go.Figure]]:
    """Named figures; none where a stage that they need was not run."""
    charts = [
        (f"{column} against seconds", quality_chart(run, column))
        for column in plotted_columns(run)
        if any(_timed(run, row, column) for row in run.rows)
    ]
    sweep = sweep_chart(run)
    return charts + ([(SWEEP, sweep)] if sweep is not None else [])


def _timed(run: Run, row: Row, column: str) -> bool:
    known = row.timing.get("s_per_image") and run.figure(row, column) is not None
    return bool(known) and not row.failed


def quality_chart(run: Run, column: str) -> go.Figure:
    """A point a row with its 95 % interval, all its figures on hover; the Pareto front joined."""
    rows = [row for row in run.rows if _timed(run, row, column)]
    points = [(row.timing["s_per_image"], run.figure(row, column)) for row in rows]
    figure = go.Figure(layout=LAYOUT)
    better = run.better(column)
    if better is not None:
        front = pareto_front(points, better)
        figure.add_scatter(
            x=[points[i][0] for i in front], y=[points[i][1] for i in front], mode="lines",
            line={"color": GREY, "width": 1, "dash": "dot"}, name="Pareto front",
            hoverinfo="skip",
        )  # fmt: skip
    for row, (x, y) in zip(rows, points, strict=True):
        i = run.rows.index(row)  # a row looks the same in every chart
        interval = run.interval(row, column)
        figure.add_scatter(
            x=[x], y=[y], mode="markers", name=escape(row_label(run, row)), text=[hover(run, row)],
            hovertemplate="%{text}<extra></extra>",
            marker={"size": 11, "color": COLOURS[i % len(COLOURS)], "symbol": i % 24},
            error_y={"array": [interval.half], "thickness": 1} if interval else None,
        )  # fmt: skip
    figure.update_xaxes(title="seconds an image")
    figure.update_yaxes(title=column + ARROWS[better])
    return figure


def hover(run: Run, row: Row) -> str:
    """What a point says: the row's name, seconds, speed-up and every quality figure."""
    timing = row.timing
    lines = [f"<b>{escape(row_label(run, row))}</b>", f"{timing['s_per_image']:.3f} s/im"]
    if timing.get("speedup"):
        lines.append(f"{timing['speedup']:.2f}×")
    for column in run.quality_columns():
        value = run.figure(row, column)
        if value is not None:
            interval = run.interval(row, column)
            spread = f" ± {interval.half:.3g}" if interval else ""
            lines.append(f"{escape(column)} {value:.4g}{spread}")
    return "<br>".join(lines)


def escape(text: str) -> str:
    """Plotly reads a few tags in its texts: none comes from a name."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def sweep_chart(run: Run) -> go.Figure | None:
    """Quality and seconds along the swept key, as the PDF of the same name."""
    key = run.experiment.get("swept")
    series = along_swept_key(run, key) if key else {}
    panels = panels_along(run, series) if series else []
    if not panels:
        return None
    lines = math.ceil(len(panels) / COLUMNS)
    figure = make_subplots(
        rows=lines, cols=min(COLUMNS, len(panels)), subplot_titles=[escape(t) for t, _ in panels],
        vertical_spacing=0.32 / lines,
    )  # fmt: skip
    for n, (_, figure_of) in enumerate(panels):
        place = {"row": 1 + n // COLUMNS, "col": 1 + n % COLUMNS}
        for i, (name, rows) in enumerate(series.items()):
            known = [(setting_of(row, key), figure_of(row)) for row in rows]
            known = [(x, y) for x, y in known if y is not None]
            figure.add_scatter(
                x=[x for x, _ in known], y=[y for _, y in known], mode="lines+markers",
                name=escape(name), legendgroup=name, showlegend=n == 0,
                line={"color": COLOURS[i % len(COLOURS)]}, **place,
            )  # fmt: skip
        for row in fixed_rows(run):
            if figure_of(row) is not None:
                figure.add_hline(
                    y=figure_of(row), line={"color": GREY, "width": 1, "dash": "dash"},
                    annotation_text=escape(row_label(run, row)), annotation_font_size=10,
                    **place,
                )  # fmt: skip
    figure.update_layout(LAYOUT | {"height": 80 + 290 * lines})
    for n in range(len(panels)):
        if n + COLUMNS >= len(panels):  # the lowest of its column
            place = {"row": 1 + n // COLUMNS, "col": 1 + n % COLUMNS}
            figure.update_xaxes(title=AXES.get(key, key), **place)
    return figure
