"""How many times as fast as the peers, as nothing, and as merging for nothing: the short table."""

from __future__ import annotations

from typing import Any, NamedTuple

from tabulate import tabulate

from experiments.bench import cost, variants
from experiments.bench.generation import CA_TOME, OURS
from experiments.bench.measure import ratio

HEADS = ("", "dtype", "unpatched", "tomesd", "ca_tome", "free merge")
CHANNELS = 320  # of the operations shown
COSTS = ("cost", "adaptive_cost")


class Line(NamedTuple):
    """`ours` against the variants of the last four `HEADS`; None where there is none."""

    what: str
    dtype: str
    ours: str
    peers: tuple[str | None, str | None, str | None, str | None]


def summary(found: list[dict[str, Any]]) -> str:
    """Ratios other / ours with their intervals, a line for all that was compared; "" for nothing.

    Args:
        found: cells as in `to_markdown`.
    """
    groups = list(dict.fromkeys(cell["group"] for cell in found))
    lines = [
        [line.what, line.dtype, *(times(compared(cell), peer, line.ours) for peer in line.peers)]
        for cell in sorted(found, key=lambda cell: groups.index(cell["group"]))
        for line in lines_of(cell["group"], cell["settings"])
        if any(peer in compared(cell) for peer in line.peers)
    ]
    if not lines:
        return ""
    align = ("left", "left", "right", "right", "right", "right")
    return tabulate(lines, HEADS, tablefmt="pipe", disable_numparse=True, colalign=align)


def compared(cell: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds by variant, of which ratios are taken."""
    return cost.evaluations(cell) if cell["group"] in COSTS else cell["seconds"]


def lines_of(group: str, settings: list[Any]) -> list[Line]:
    if group == "operations":
        kind, tokens, channels, dtype = settings
        if channels != CHANNELS or kind in ("merge", "unmerge"):
            return []
        return [Line(f"{kind}, N {tokens}", dtype, "catome", (None, "tomesd", None, None))]
    if group == "block":
        share, dtype = settings
        return matching_and_reusing(f"block of 4096 tokens, ratio {share}", dtype)
    alone = ", merging alone" if group in COSTS else ""
    if group in ("unet", "cost"):
        architecture, pixels, share, dtype = settings
        return matching_and_reusing(f"{architecture} {pixels} px, ratio {share}{alone}", dtype)
    if group in ("adaptive", "adaptive_cost"):
        architecture, pixels, dtype = settings
        return matching_and_reusing(f"{architecture} {pixels} px, threshold{alone}", dtype)
    if group == "nothing":
        architecture, pixels, dtype = settings
        what = f"{architecture} {pixels} px, merging nothing"
        return [Line(what, dtype, variants.NOTHING, (variants.UNPATCHED, None, None, None))]
    if group == "compiled":
        architecture, pixels, dtype = settings
        what = f"{architecture} {pixels} px, ratio 0.5, both compiled"
        peers = (variants.COMPILED, None, None, None)
        return [
            Line(f"{what}, matching", dtype, variants.COMPILED_MATCH, peers),
            Line(f"{what}, re-using", dtype, variants.COMPILED_REUSE, peers),
        ]
    if group == "generation":
        peers = (variants.UNPATCHED, None, CA_TOME, variants.FREE)
        return [Line("toy generation, matched every 5", "float32", OURS, peers)]
    return []


def matching_and_reusing(what: str, dtype: str) -> list[Line]:
    others = variants.UNPATCHED, variants.TOMESD
    matching = (*others, variants.CA_TOME_MATCH, None)
    reusing = (*others, variants.CA_TOME_REUSE, variants.FREE)
    return [
        Line(f"{what}, matching", dtype, variants.MATCH, matching),
        Line(f"{what}, re-using", dtype, variants.REUSE, reusing),
    ]


def times(seconds: dict[str, list[float]], slow: str | None, fast: str) -> str:
    """The median of the ratios within a turn and its interval; a dash where one was not timed."""
    if slow not in seconds or fast not in seconds:
        return "—"
    found = ratio(seconds, slow, fast)
    digits = 3 if found.value < 2 else 1
    return f"{found.value:.{digits}f} ({found.low:.{digits}f}–{found.high:.{digits}f})"
