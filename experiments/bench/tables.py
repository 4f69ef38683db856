"""The benchmark's Markdown tables, from the cells that are finished."""

from __future__ import annotations

from statistics import median
from typing import Any

from tabulate import tabulate

from experiments.bench import ragged, variants
from experiments.bench.generation import CA_TOME, OURS
from experiments.bench.summary import COSTS, compared, summary, times
from experiments.settings.choices import LARGEST

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


def table(group: str, cells: list[dict[str, Any]]) -> str:
    settings, ratios = HEADS[group], RATIOS[group]
    names = list(dict.fromkeys(name for cell in cells for name in cell["seconds"]))
    if group == "memory":
        names = [name for cell in cells for name in cell["facts"]["peak GiB"]]
    shares = any("merged share of sources" in cell["facts"] for cell in cells)
    unit = "" if group == "memory" else " ms"
    heads = [*settings, *(f"{name}{unit}" for name in dict.fromkeys(names))]
    heads += [head for head, _, _ in ratios] + ["merged"] * shares
    if group == "ragged":
        heads.append("kernel")
    if group in COSTS:
        heads += [f"{name} share" for name in names]
    if group == "gpu":
        heads += [f"{fact}: {', '.join(ON_GPU)}" for fact in ("peak GiB", "busy")]
    lines = []
    for cell in cells:
        facts = cell["facts"]
        line = [str(setting) for setting in cell["settings"]]
        if group == "gpu" and line[-1] == LARGEST:
            line[-1] = f"{LARGEST}: {facts['images']}"
        for name in dict.fromkeys(names):
            if group == "memory":
                line.append(f"{facts['peak GiB'][name]:.2f}")
            else:
                line.append(milliseconds(cell["seconds"].get(name)))
        line += [times(compared(cell), slow, fast) for _, slow, fast in ratios]
        if shares:
            line.append(f"{100 * facts['merged share of sources']:.0f} %")
        if group == "ragged":
            line.append("; ".join(f"{name}: {own}" for name, own in facts["kernel"].items()))
        if group in COSTS:
            line += [
                f"{100 * median(cell['seconds'][name]) / facts['evaluation'][name]:.2g} %"
                for name in names
            ]
        if group == "gpu":
            line.append(", ".join(f"{facts['peak GiB'][name]:.2f}" for name in ON_GPU))
            line.append(", ".join(f"{100 * facts['busy'][name]:.0f} %" for name in ON_GPU))
        lines.append(line)
    align = [
        "left" if head in ("operation", "U-Net", "dtype", "attention", "kernel") else "right"
        for head in heads
    ]
    return tabulate(lines, headers=heads, tablefmt="pipe", disable_numparse=True, colalign=align)


def milliseconds(seconds: list[float] | None) -> str:
    if seconds is None:
        return "—"
    middle = 1000 * sorted(seconds)[len(seconds) // 2]
    return f"{middle:.3g}" if middle < 100 else f"{middle:,.0f}"
