"""Moments of a generation in the device's own time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


class Stopwatch:
    """Marks moments of a device's own time: CUDA events, or a clock on the CPU."""

    def __init__(self, where: torch.device):
        self.cuda = where.type == "cuda"

    def mark(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """After `synchronise`."""
        return start.elapsed_time(end) / 1000 if self.cuda else end - start

    def synchronise(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


@dataclass
class Trace:
    """Moments of one generation: begin and end of each U-Net evaluation, begin of decoding."""

    begins: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    decode: Any = None


@contextmanager
def traced(pipe, watch: Stopwatch) -> Iterator[Trace]:
    trace = Trace()

    def decoding(*_: Any) -> None:
        trace.decode = watch.mark()

    first_of_decoder = getattr(pipe.vae, "post_quant_conv", None) or pipe.vae.decoder
    hooks = [
        pipe.unet.register_forward_pre_hook(lambda *_: trace.begins.append(watch.mark())),
        pipe.unet.register_forward_hook(lambda *_: trace.ends.append(watch.mark())),
        first_of_decoder.register_forward_pre_hook(decoding),
    ]
    try:
        yield trace
    finally:
        for hook in hooks:
            hook.remove()
