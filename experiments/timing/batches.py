"""How many images a timed generation paints."""

from __future__ import annotations

from collections.abc import Callable

import torch
from omegaconf import OmegaConf

from experiments.models import pipelines
from experiments.painting import pipeline_call
from experiments.painting.store import Prompt
from experiments.settings.choices import LARGEST
from experiments.timing.turns import TimedRow


def cycled(prompts: list[Prompt], count: int) -> list[Prompt]:
    return [prompts[i % len(prompts)] for i in range(count)]


def batch_of(row: TimedRow, prompts: list[Prompt]) -> int:
    """`timing.batch_size`; `largest` is the largest power of two that CUDA's memory holds, by
    trying two steps of each."""
    if row.cfg.timing.batch_size != LARGEST:
        return row.cfg.timing.batch_size
    short = OmegaConf.merge(row.cfg, {"generation": {"steps": 2}})

    def attempt(batch: int) -> None:
        pipe = pipelines.load(short)
        with row.method.attach(pipe):
            pipeline_call.generate(pipe, short, cycled(prompts, batch))

    return largest_batch(attempt)


def largest_batch(attempt: Callable[[int], None], most: float = float("inf")) -> int:
    """The largest power of two up to `most` that can be attempted without running out of memory;
    1 is not tried."""
    batch = 1
    while 2 * batch <= most and fits(attempt, 2 * batch):
        batch *= 2
    return batch


def fits(attempt: Callable[[int], None], batch: int) -> bool:
    try:
        attempt(batch)
    except torch.OutOfMemoryError:
        return False
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return True
