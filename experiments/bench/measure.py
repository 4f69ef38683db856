"""Seconds of variants that take turns, and the ratios between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tqdm import tqdm

from experiments.common.uncertainty import Interval, median_interval
from experiments.timing.stopwatch import Stopwatch

SHORTEST = 0.02  # seconds of one sample; a shorter call is repeated within it
LONG = 1.0  # seconds of a call that need no second one to warm up


def take_turns(
    variants: dict[str, Callable[[], Any]], turns: int, where: torch.device, label: str
) -> dict[str, list[float]]:
    """Seconds a call of each variant, once a turn (A B C A B C ...).

    Args:
        variants: what to time, by name; each was set up, and is called before to warm up, once if
            that takes a second, otherwise twice.
        turns: how often.
        where: the device that they compute on.
    """
    watch = Stopwatch(where)
    inner = {name: repeats_of(call, watch) for name, call in variants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    with tqdm(total=turns * len(variants), desc=label, unit="sample") as progress:
        for _ in range(turns):
            for name, call in variants.items():
                seconds[name].append(sample(call, inner[name], watch))
                progress.update()
    return seconds


def repeats_of(call: Callable[[], Any], watch: Stopwatch) -> int:
    """How often to call within one sample; calls once or twice."""
    if sample(call, 1, watch) > LONG:
        return 1
    return max(1, round(SHORTEST / max(sample(call, 1, watch), 1e-6)))


@torch.no_grad()
def sample(call: Callable[[], Any], inner: int, watch: Stopwatch) -> float:
    watch.synchronise()
    start = watch.mark()
    for _ in range(inner):
        call()
    end = watch.mark()
    watch.synchronise()
    return watch.seconds(start, end) / inner


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> Interval:
    """Median and interval of the ratios slow / fast within a turn."""
    return median_interval([a / b for a, b in zip(seconds[slow], seconds[fast], strict=True)])
