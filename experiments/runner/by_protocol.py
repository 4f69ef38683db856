"""The same images scored under several protocols: how much of a figure is protocol."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from tabulate import tabulate

from experiments.common.files import write_atomically, write_text
from experiments.metrics.csv_cells import escape_cell
from experiments.metrics.scores import Scores
from experiments.report.cells import NONE
from experiments.report.escape import markdown


def compare_protocols(folders: dict[str, Path], out: Path) -> str:
    """Write `protocols.csv` and `protocols.md` into `out`; returns the Markdown table.

    A line is a row's figure under its full name, so that figures on one line differ in what was
    done to the images alone; a protocol that does not compute it has a dash.

    Args:
        folders: {protocol: folder of the evaluation under it}, of the same images.
    """
    scores = {name: Scores.load(folder) for name, folder in folders.items()}
    lines: dict[tuple[str, str], dict[str, float | int | None]] = {}
    for name, found in scores.items():
        for row, figures in found.figures.items():
            for column, value in figures.items():
                lines.setdefault((column, row), {})[name] = value
    columns = list(dict.fromkeys(column for column, _ in lines))
    ordered = sorted(lines, key=lambda key: columns.index(key[0]))  # rows of a figure together
    table = pd.DataFrame(
        [{"figure": c, "row": r, **{name: lines[c, r].get(name) for name in folders}}
         for c, r in ordered],
        columns=["figure", "row", *folders],
    )  # fmt: skip
    escaped = table.map(escape_cell)
    write_atomically(out / "protocols.csv", lambda beside: escaped.to_csv(beside, index=False))
    cells = [
        [markdown(c), markdown(r), *(_shown(lines[c, r].get(name)) for name in folders)]
        for c, r in ordered
    ]
    text = "## The same images under several protocols\n\n" + tabulate(
        cells,
        headers=["figure", "row", *(markdown(name) for name in folders)],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["left", "left", *["right"] * len(folders)],
    )
    write_text(out / "protocols.md", text + "\n")
    return text


def _shown(value: float | int | None) -> str:
    return NONE if value is None or value != value else f"{value:.4g}"
