"""The published tables of `results/paper/`, to stand beside ours."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from experiments.common.errors import ConfigError
from experiments.common.paths import ROOT

PAPER = ROOT / "results" / "paper"
TABLES = ("table_adaptive", "table_caching", "tomesd")
NUMBERS = ("threshold", "ratio", "fid", "seconds_per_image", "gb_per_image")


@dataclass(frozen=True)
class Published:
    """One published row: FID and seconds an image, with what is known of how and what is not."""

    fid: float
    seconds_per_image: float
    gpu: str
    fid_tool: str
    unknown: tuple[str, ...]
    source: str


def load_published(name: str) -> pd.DataFrame:
    """A published table; numbers are floats (NaN where the method has none), the rest texts.

    Raises:
        ConfigError: no such table.
    """
    if name not in TABLES:
        raise ConfigError(f"experiment.published={name}: must be one of {', '.join(TABLES)}")
    table = pd.read_csv(PAPER / f"{name}.csv", dtype=str, keep_default_na=False)
    for column in NUMBERS:
        if column in table:
            table[column] = pd.to_numeric(table[column].replace("", None)).astype(float)
    return table


def load_checkpoint_lists() -> dict[str, list[int]]:
    """{key: steps as printed in the paper}; see the README there for what they count from."""
    table = pd.read_csv(PAPER / "checkpoint_lists.csv", dtype=str)
    return {
        key: [int(step) for step in steps.split()]
        for key, steps in zip(table["key"], table["steps"], strict=True)
    }


def find_published(table: pd.DataFrame, columns: dict, is_baseline: bool) -> Published | None:
    """The published row with the same threshold (or ratio) and caching configuration.

    Args:
        table: from `load_published`.
        columns: a row's `columns`: threshold, ratio, caching.
        is_baseline: whether it is the row without merging, which has neither.
    """
    if is_baseline:
        found = table[table["method"] == "baseline"]
    else:
        key = "ratio" if "ratio" in table else "threshold"
        if columns.get(key) is None:
            return None
        same = (table[key] - float(columns[key])).abs() < 1e-9
        if "caching" in table:
            same &= table["caching"].map(_plain) == _plain(columns.get("caching"))
        elif _plain(columns.get("caching")) not in ("everystep", ""):
            return None  # the published rows match at every step
        found = table[same & (table["method"] != "baseline")]
    if found.empty:
        return None
    row = found.iloc[0]
    unknown = tuple(column for column in table if row[column] == "unknown")
    return Published(
        row["fid"], row["seconds_per_image"], row["gpu"], row["fid_tool"], unknown, row["source"]
    )


def baseline_noise() -> tuple[float, float]:
    """By how much the same baseline differs between CA-ToMe's two tables: FID, seconds."""
    one, other = (load_published(name).iloc[0] for name in ("table_adaptive", "table_caching"))
    return (
        abs(one["fid"] - other["fid"]),
        abs(one["seconds_per_image"] - other["seconds_per_image"]),
    )


def _plain(caching: object) -> str:
    return "" if caching in (None, "—") else str(caching).lower().replace(" ", "")
