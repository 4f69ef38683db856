"""Plots with a panel for each transformer block."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.report.plots import STYLE


def block_panels(blocks: Iterable[str], across: str, up: str) -> tuple[Figure, list[Axes]]:
    """A figure with a titled panel a block, side by side, and its panels."""
    names = short_names(blocks)
    with plt.rc_context(STYLE | {"axes.grid": len(names) == 1}):
        figure, panels = plt.subplots(
            1, len(names), figsize=(1.2 + 2.9 * max(len(names), 1.4), 3.0), squeeze=False,
            layout="constrained",
        )  # fmt: skip
        for axes, name in zip(panels[0], names, strict=True):
            axes.set_title(name, fontsize=9)
            axes.set_xlabel(across)
        panels[0, 0].set_ylabel(up)
    return figure, list(panels[0])


def short_names(blocks: Iterable[str]) -> list[str]:
    """`down 0.0`, `mid`, `up 1.2` of Diffusers' names of transformer blocks.

    `down_blocks.0.attentions.1.transformer_blocks.0` is `down 0.1`; where an attention has several
    transformer blocks the last number is appended.
    """
    split = [block.split(".") for block in blocks]
    several = any(parts[-1:] not in ([], ["0"], [""]) for parts in split)
    names = []
    for parts in split:
        numbers = [part for part in parts if part.isdigit()]
        numbers = numbers if several else numbers[:-1]
        names.append(" ".join([parts[0].removesuffix("_blocks"), ".".join(numbers)]).strip())
    return names
