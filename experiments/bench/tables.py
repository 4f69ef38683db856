"""The benchmark's Markdown tables, from the cells that are finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median
from typing import Any

from tabulate import tabulate

from experiments.bench import ragged, variants
from experiments.bench.generation import CA_TOME, OURS
from experiments.bench.summary import COSTS, compared, summary, times
from experiments.settings.choices import LARGEST

Cell = dict[str, Any]  # as `cells.json` keeps it: group, settings, seconds, facts, turns
Column = tuple[str, Callable[[Cell], str]]  # its head, and what it says of a cell

HEADS = {
    "operations": ("operation", "N", "C", "dtype"),
    "block": ("ratio", "dtype"),
    "unet": ("U-Net", "pixels", "ratio", "dtype"),
    "cost": ("U-Net", "pixels", "ratio", "dtype"),
    "adaptive": ("U-Net", "pixels", "dtype"),
    "adaptive_cost": ("U-Net", "pixels", "dtype"),
    "nothing": ("U-Net", "pixels", "dtype"),
    "compiled": ("U-Net", "pixels", "dtype"),
    "ragged": ("images", "N", "C", "dtype"),
    "generation": (),
    "memory": ("U-Net", "pixels", "dtype"),
    "gpu": ("U-Net", "pixels", "dtype", "attention", "images"),
}
TITLES = {
    "operations": "Operations (two rows, ratio 0.5)",
    "block": "One top-level transformer of SD v1.5 at 512 px",
    "unet": "One U-Net evaluation at a fixed ratio",
    "cost": "What merging alone takes of one U-Net evaluation",
    "adaptive": "One U-Net evaluation at a threshold",
    "adaptive_cost": "What merging alone takes at a threshold",
    "nothing": "One U-Net evaluation, attached but merging nothing",
    "compiled": "One U-Net evaluation at ratio 0.5, blocks by torch.compile and without",
    "ragged": "Self-attention of images that keep a quarter to three quarters of their tokens",
    "generation": "Toy world, 20 PLMS steps end to end, matched every 5",
    "memory": "Peak memory of an evaluation, GiB",
    "gpu": "One U-Net evaluation on a GPU, ratio 0.5",
}
# (head, slower variant, faster variant): medians of the ratios within a turn.
AT_RATIO = (
    ("tomesd / matching", variants.TOMESD, variants.MATCH),
    ("tomesd / re-using", variants.TOMESD, variants.REUSE),
    ("unpatched / tomesd", variants.UNPATCHED, variants.TOMESD),
    ("unpatched / matching", variants.UNPATCHED, variants.MATCH),
    ("unpatched / re-using", variants.UNPATCHED, variants.REUSE),
    ("free / re-using", variants.FREE, variants.REUSE),
)
AT_THRESHOLD = (
    ("ca_tome / catome, matching", variants.CA_TOME_MATCH, variants.MATCH),
    ("ca_tome / catome, re-using", variants.CA_TOME_REUSE, variants.REUSE),
    ("unpatched / re-using", variants.UNPATCHED, variants.REUSE),
    ("free / re-using", variants.FREE, variants.REUSE),
)
RATIOS = {
    "operations": (("tomesd / catome", "tomesd", "catome"),),
    "block": AT_RATIO,
    "unet": AT_RATIO,
    "cost": [pair for pair in AT_RATIO if variants.UNPATCHED not in pair],
    "adaptive": AT_THRESHOLD,
    "adaptive_cost": [pair for pair in AT_THRESHOLD if variants.UNPATCHED not in pair],
    "nothing": (("attached / unpatched", variants.NOTHING, variants.UNPATCHED),),
    "compiled": (
        ("unpatched / compiled", variants.UNPATCHED, variants.COMPILED),
        ("compiled: unpatched / matching", variants.COMPILED, variants.COMPILED_MATCH),
        ("compiled: unpatched / re-using", variants.COMPILED, variants.COMPILED_REUSE),
        ("unpatched / re-using", variants.UNPATCHED, variants.REUSE),
    ),
    "ragged": (
        ("masked / one by one", ragged.MASKED, ragged.ONE_BY_ONE),
        ("nested / one by one", ragged.NESTED, ragged.ONE_BY_ONE),
    ),
    "generation": (
        ("ca_tome / catome", CA_TOME, OURS),
        ("unpatched / ca_tome", variants.UNPATCHED, CA_TOME),
        ("unpatched / catome", variants.UNPATCHED, OURS),
        ("free / catome", variants.FREE, OURS),
    ),
    "memory": (),
    "gpu": AT_RATIO,
}
ON_GPU = (variants.UNPATCHED, variants.TOMESD, variants.REUSE)
MERGED = "merged share of sources"
TEXTS = ("operation", "U-Net", "dtype", "attention", "kernel")  # heads of columns of words
WITHOUT_GPU = "Not measured: `sh scripts/bench_gpu.sh` on a machine with CUDA measures it."


def to_markdown(found: list[dict[str, Any]], environment: dict[str, Any]) -> str:
    """One table a group of cells, seconds as medians, ratios with their intervals.

    Args:
        found: cells as `cells.json` keeps them: group, settings, seconds, facts, turns.
        environment: what they were measured on.
    """
    short = summary(found)
    parts = [f"### In short: catome is so many times as fast as\n\n{short}"] if short else []
    for group, title in TITLES.items():
        own = [cell for cell in found if cell["group"] == group]
        if group == "gpu" and not own:
            parts.append(f"### {title}\n\n{WITHOUT_GPU}")
        elif own:
            parts.append(f"### {title}\n\n{table(group, own)}")
    described = ", ".join(f"{key} {value}" for key, value in environment.items())
    note = (
        "Variants take turns in one process; ratios are medians within a turn, in brackets the "
        "interval of that median by order statistics (95 % from 6 turns on). Merging alone: what "
        "merging takes, added to the median of all else in an evaluation. "
        f"{described}."
    )
    return "\n\n".join([*parts, note])


def table(group: str, cells: list[Cell]) -> str:
    columns = columns_of(group, cells)
    lines = [[show(cell) for _, show in columns] for cell in cells]
    heads = [head for head, _ in columns]
    align = ["left" if head in TEXTS else "right" for head in heads]
    return tabulate(lines, headers=heads, tablefmt="pipe", disable_numparse=True, colalign=align)


def columns_of(group: str, cells: list[Cell]) -> list[Column]:
    """A group's settings, its variants, their ratios and what else is known of its cells."""
    columns = [(head, partial(setting, position)) for position, head in enumerate(HEADS[group])]
    if group == "memory":
        columns += [(name, partial(peak, [name])) for name in named(cells, peaks_of)]
    else:
        names = named(cells, lambda cell: cell["seconds"])
        columns += [(f"{name} ms", partial(time_of, name)) for name in names]
    columns += [(head, partial(ratio_of, slow, fast)) for head, slow, fast in RATIOS[group]]
    if any(MERGED in cell["facts"] for cell in cells):
        columns.append(("merged", lambda cell: f"{100 * cell['facts'][MERGED]:.0f} %"))
    if group in COSTS:
        columns += [(f"{name} share", partial(share_of, name)) for name in names]
    return columns + MORE.get(group, [])


def named(cells: list[Cell], of: Callable[[Cell], Iterable[str]]) -> list[str]:
    """All names that cells have, in the order of their first."""
    return list(dict.fromkeys(name for cell in cells for name in of(cell)))


def setting(position: int, cell: Cell) -> str:
    value = cell["settings"][position]
    return f"{LARGEST}: {cell['facts']['images']}" if value == LARGEST else str(value)


def time_of(name: str, cell: Cell) -> str:
    return milliseconds(cell["seconds"].get(name))


def ratio_of(slow: str, fast: str, cell: Cell) -> str:
    return times(compared(cell), slow, fast)


def share_of(name: str, cell: Cell) -> str:
    """Of what the whole evaluation takes."""
    return f"{100 * median(cell['seconds'][name]) / cell['facts']['evaluation'][name]:.2g} %"


def peaks_of(cell: Cell) -> dict[str, float]:
    return cell["facts"]["peak GiB"]


def peak(names: Sequence[str], cell: Cell) -> str:
    return ", ".join(f"{peaks_of(cell)[name]:.2f}" for name in names)


def busy(cell: Cell) -> str:
    return ", ".join(f"{100 * cell['facts']['busy'][name]:.0f} %" for name in ON_GPU)


def kernels(cell: Cell) -> str:
    return "; ".join(f"{name}: {own}" for name, own in cell["facts"]["kernel"].items())


# Columns that one group alone has.
MORE: dict[str, list[Column]] = {
    "ragged": [("kernel", kernels)],
    "gpu": [
        (f"peak GiB: {', '.join(ON_GPU)}", partial(peak, ON_GPU)),
        (f"busy: {', '.join(ON_GPU)}", busy),
    ],
}


def milliseconds(seconds: list[float] | None) -> str:
    if seconds is None:
        return "—"
    middle = 1000 * sorted(seconds)[len(seconds) // 2]
    return f"{middle:.3g}" if middle < 100 else f"{middle:,.0f}"
