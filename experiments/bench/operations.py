"""Matching, merging and un-merging by themselves, as `tomesd` does them and as we do."""

from __future__ import annotations

from typing import Any

import torch
from tomesd.merge import bipartite_soft_matching_random2d

import catome
from experiments.bench.measure import take_turns

RATIO, ROWS = 0.5, 2
WINDOW = 16  # tokens


def tokens_of(side: int, channels: int, dtype: torch.dtype, where: torch.device) -> torch.Tensor:
    """(2, side * side, channels) of a smooth random field with noise."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(ROWS, channels, 8, 8, generator=generator)
    field = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
    noise = torch.randn(ROWS, channels, side, side, generator=generator)
    return (field + 0.5 * noise).flatten(2).mT.contiguous().to(where, dtype)


def operation(
    kind: str, tokens: int, channels: int, dtype: torch.dtype, where: torch.device, turns: int
) -> dict[str, list[float]]:
    """Seconds of a kind of work on two rows at ratio 0.5 with random destinations.

    Args:
        kind: "match"; "match in windows", of which `tomesd` knows none and compares all; "merge",
            "unmerge" or both.
    """
    side = int(tokens**0.5)
    x = tokens_of(side, channels, dtype, where)
    theirs_random = torch.Generator(where).manual_seed(0)
    ours_random = torch.Generator().manual_seed(0)

    def their_match() -> Any:
        return bipartite_soft_matching_random2d(
            x, side, side, 2, 2, int(RATIO * tokens), generator=theirs_random
        )

    def our_match(window: int | None = None) -> Any:
        destinations = catome.destination_tokens(side, side, 2, ours_random)
        return catome.match(x, destinations, catome.Ratio(RATIO), (side, side), window)

    merge, unmerge = their_match()
    ours, _ = our_match()
    short, own = merge(x), ours.merge(x)
    calls = {
        "match": (their_match, our_match),
        "match in windows": (their_match, lambda: our_match(WINDOW)),
        "merge": (lambda: merge(x), lambda: ours.merge(x)),
        "unmerge": (lambda: unmerge(short), lambda: ours.unmerge(own)),
        "merge + unmerge": (lambda: unmerge(merge(x)), lambda: ours.unmerge(ours.merge(x))),
    }
    theirs, mine = calls[kind]
    label = f"{kind} N={tokens} C={channels} {str(dtype).removeprefix('torch.')}"
    return take_turns({"tomesd": theirs, "catome": mine}, turns, where, label)
