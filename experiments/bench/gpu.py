"""U-Net evaluations as GPUs run them: by dtype, attention and batch, with memory and idle time.

    python -m experiments.bench groups=[gpu]

Weights are random and made on the device; nothing is downloaded. A cell gives up turns, down to
`FEWEST`, rather than take longer than `SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import DeviceType

from experiments.bench import unets
from experiments.bench.measure import sample, take_turns
from experiments.painting.pipeline_call import attention_backend
from experiments.settings.choices import LARGEST
from experiments.timing.batches import largest_batch
from experiments.timing.memory import peak_memory_gb, reset_peak_memory
from experiments.timing.stopwatch import Stopwatch

RATIO = 0.5
SECONDS = 25  # of a cell's turns
FEWEST = 6  # turns: with fewer there is no 95 % interval of a median
MOST = 64  # images that `largest` tries
ATTENTIONS = ("fused", "math")


def evaluation(
    architecture: str,
    pixels: int,
    dtype: torch.dtype,
    attention: str,
    batch: int | str,
    where: torch.device,
    turns: int,
) -> unets.Measured:
    """An evaluation at ratio 0.5 of `batch` images with guidance.

    Args:
        attention: see `pipelines.attention_backend`.
        batch: images; `largest` is the largest power of two up to 64 at which all variants fit.
    """
    with attention_backend(attention):
        images = largest(architecture, pixels, dtype, where) if batch == LARGEST else batch
        of = unets.subject(architecture, pixels, dtype, where, 2 * images)
        models, share = unets.at_ratio(of, RATIO)
        calls = {name: partial(unets.run, model, of.given) for name, model in models.items()}
        watch = Stopwatch(where)
        for call in calls.values():
            sample(call, 1, watch)
        once = sum(sample(call, 1, watch) for call in calls.values())
        turns = max(FEWEST, min(turns, int(SECONDS / once)))
        label = f"{of.name} {str(dtype).removeprefix('torch.')} {attention} batch {images}"
        seconds = take_turns(calls, turns, where, label)
        facts = {
            "merged share of sources": share,
            "images": images,
            "peak GiB": {name: peak(call, watch) for name, call in calls.items()},
        }
        if watch.cuda:
            facts["busy"] = {name: busy_share(call, watch) for name, call in calls.items()}
    return seconds, facts


def largest(architecture: str, pixels: int, dtype: torch.dtype, where: torch.device) -> int:
    """The largest power of two of images, up to `MOST`, at which no variant runs out of memory."""

    def attempt(images: int) -> None:
        of = unets.subject(architecture, pixels, dtype, where, 2 * images)
        for model in unets.at_ratio(of, RATIO)[0].values():
            unets.run(model, of.given)

    return largest_batch(attempt, MOST)


def peak(call: Callable[[], Any], watch: Stopwatch) -> float | None:
    """GiB while a call runs, with the weights and inputs that all variants share."""
    reset_peak_memory(watch.cuda)
    sample(call, 1, watch)
    return peak_memory_gb(watch.cuda)


def busy_share(call: Callable[[], Any], watch: Stopwatch) -> float:
    """Share of an evaluation during which the GPU computes; the rest it waits for the CPU.

    Kernels are timed under torch.profiler, the whole without, as the profiler slows the CPU down.
    """
    whole = sample(call, 1, watch)
    with torch.profiler.profile() as profile:
        sample(call, 1, watch)
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in profile.events()
        if event.device_type == DeviceType.CUDA
    ]
    return min(1.0, covered(spans) / 1e6 / whole)


def covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
