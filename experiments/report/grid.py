"""A grid of painted images: a row a method, a column a prompt, captions above the columns."""

from __future__ import annotations

import textwrap
from pathlib import Path

from matplotlib import pyplot as plt
from PIL import Image

from experiments.metrics.images import read_image
from experiments.report.escape import one_line
from experiments.report.plots import STYLE, save
from experiments.report.run_folder import Run, row_label

COLUMNS, ROWS = 8, 10
CELL = 1.45  # inches
PIXELS = 320  # of a cell at most; the images themselves lie in the store


def plot_grid(run: Run, folder: Path) -> None:
    """`grid`: the first 8 prompts of the first 10 painted rows.

    Nothing is written where no images are listed; an image that is gone leaves a crossed cell.
    """
    rows = [row for row in run.rows if run.painted.get(row.name) and not row.failed]
    prompts = run.manifest.get("prompts") or []
    columns = min(COLUMNS, max((len(run.painted[row.name]) for row in rows), default=0))
    if not columns:
        return
    left_out = len(rows) - ROWS
    rows = rows[:ROWS]
    captions = [_caption(prompts[i]["text"]) if i < len(prompts) else "" for i in range(columns)]
    lines = max(caption.count("\n") + 1 for caption in captions)
    head, side = 0.14 * lines + 0.12, 1.25
    width, height = side + CELL * columns, head + CELL * len(rows) + 0.2
    with plt.rc_context(STYLE | {"axes.grid": False}):
        figure = plt.figure(figsize=(width, height))
        panels = figure.subplots(
            len(rows), columns, squeeze=False,
            gridspec_kw={
                "left": side / width, "right": 1, "top": 1 - head / height, "bottom": 0.2 / height,
                "wspace": 0.03, "hspace": 0.03,
            },
        )  # fmt: skip
        for line, row in zip(panels, rows, strict=True):
            paths = run.painted[row.name]
            for i, axes in enumerate(line):
                axes.set_xticks([])
                axes.set_yticks([])
                for spine in axes.spines.values():
                    spine.set_visible(False)
                image = _thumbnail(paths[i]) if i < len(paths) else None
                if image is None:
                    axes.plot([0, 1], [0, 1], [0, 1], [1, 0], color="#cccccc")
                    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
                else:
                    axes.imshow(image)
            label = textwrap.fill(one_line(row_label(run, row)), 15)
            line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8, labelpad=6)
        for axes, caption in zip(panels[0], captions, strict=True):
            axes.set_title(caption, fontsize=7, pad=4, va="bottom")
        if left_out > 0:
            figure.text(0.5, 0.02, f"{left_out} more rows are not shown", ha="center", fontsize=7)
        save(figure, folder, "grid")


def _caption(text: str) -> str:
    lines = textwrap.wrap(one_line(text), 23, max_lines=5, placeholder=" …")
    return "\n".join(lines)


def _thumbnail(path: Path) -> Image.Image | None:
    try:
        image = read_image(path)
    except ValueError:
        return None
    image.thumbnail((PIXELS, PIXELS))
    return image
