"""What an evaluation found: figures by row, values by image, and how they were obtained."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from experiments.common.files import read_json, write_atomically, write_json
from experiments.metrics.csv_cells import escape_cell, restore_cell
from experiments.painting.store import Painted

PARTS = ("figures", "counts", "beside", "replicates", "notes", "protocol")
TEXTS = ("row", "prompt", "seed", "source")


@dataclass
class Scores:
    """Figures and where they come from.

    Attributes:
        figures: {row: {column: value}}, columns in the order they were asked for; None where a
            figure is undefined (PSNR of the baseline with itself).
        counts: {row: {column: number of images behind the figure}}.
        beside: {row: {column: {what: value}}}, further figures of a column: its tail ("5th
            percentile", of LPIPS "95th percentile"), or the deviation of KID ("std over 100
            subsets") and Inception Score. Files of older versions have none.
        replicates: {row: {column: [value]}}, a figure of a whole set (a Fréchet distance) once a
            replicate, where a row has several.
        per_image: one line an image: row, prompt, seed, source and the values by image of the
            metrics that have them (CLIP scores, psnr in dB, ssim, lpips, identical); NaN where
            undefined.
        notes: what a reader of the figures must know, one sentence or two each.
        protocol: {"columns": {column: {"metric", "better": "higher" | "lower" | None}}, one
            entry a metric with what it computed on, "painted": what was done to painted images
            before features, "audit": {row: {kind: {"count", "images"}}} of black, constant and
            duplicate images}.
    """

    figures: dict[str, dict[str, float | int | None]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    beside: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    replicates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    per_image: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(TEXTS)))
    notes: list[str] = field(default_factory=list)
    protocol: dict = field(default_factory=lambda: {"columns": {}})

    @classmethod
    def of(cls, rows: list[Painted]) -> Scores:
        """No figures yet for these rows."""
        lines = [
            {"row": row.row, "prompt": p.text, "seed": p.seed, "source": p.source}
            for row in rows
            for p in row.prompts
        ]
        names = [row.row for row in rows]
        return cls(
            figures={name: {} for name in names},
            counts={name: {} for name in names},
            beside={name: {} for name in names},
            replicates={name: {} for name in names},
            per_image=pd.DataFrame(lines, columns=list(TEXTS)),
        )

    def add_column(self, column: str, metric: str, better: str | None) -> None:
        self.protocol["columns"][column] = {"metric": metric, "better": better}

    def add(self, row: str, column: str, value, n: int) -> None:
        self.figures[row][column] = value
        self.counts[row][column] = n

    def add_replicates(self, row: str, column: str, values: list[float]) -> None:
        self.replicates[row][column] = values

    def add_beside(self, row: str, column: str, what: str, value: float) -> None:
        self.beside[row].setdefault(column, {})[what] = value

    def add_mean(self, row: str, column: str, values) -> None:
        """The mean over the values that are not NaN."""
        values = pd.Series(values, dtype="float64").dropna()
        n = len(values)
        mean = float(values.mean()) if n else None
        self.add(row, column, mean, n)

    def add_per_image(self, row: str, name: str, values) -> None:
        if name not in self.per_image:
            self.per_image[name] = pd.Series([None] * len(self.per_image), dtype="Float64")
        self.per_image.loc[self.per_image["row"] == row, name] = values

    def save(self, folder: Path) -> None:
        """Write `metrics.json` and `per_image.csv` into `folder`."""
        table = self.per_image.map(escape_cell)
        write_atomically(folder / "per_image.csv", lambda beside: table.to_csv(beside, index=False))
        write_json(folder / "metrics.json", {part: getattr(self, part) for part in PARTS})

    @classmethod
    def load(cls, folder: Path) -> Scores:
        """Read what `save` wrote; FileNotFoundError where there is nothing."""
        saved = read_json(folder / "metrics.json")
        texts = {name: str for name in TEXTS if name != "seed"}
        table = pd.read_csv(folder / "per_image.csv", dtype=texts, keep_default_na=False)
        for name in table:
            if name in texts:
                table[name] = table[name].map(restore_cell)
            elif name != "seed":
                table[name] = pd.to_numeric(table[name].replace("", None)).astype("Float64")
        # Files of earlier versions lack some parts and have others.
        return cls(per_image=table, **{part: saved[part] for part in PARTS if part in saved})
