"""What the benchmark measures, as data: a cell is one line of a table, kept when it is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from experiments.bench import cost, generation, gpu, memory, operations, ragged, unets
from experiments.settings.choices import LARGEST

TOKENS, CHANNELS = {1024: 20, 4096: 20, 16384: 8}, (320, 640)  # tokens with their turns
OTHER_RATIOS = (0.25, 0.1, 0.75)  # beside 0.5
KINDS = ("match", "match in windows", "merge", "unmerge", "merge + unmerge")
GROUPS = (
    "operations", "block", "unet", "cost", "adaptive", "adaptive_cost", "nothing", "compiled",
    "ragged", "generation", "memory", "gpu",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """`settings` go to `MEASURE[group]`; `full` cells are measured by `make bench-full` alone."""

    group: str
    settings: tuple[Any, ...]
    full: bool = False
    turns: int = 20

    @property
    def name(self) -> str:
        return " ".join([self.group, *map(str, self.settings)])


def cells(dtype: str) -> list[Cell]:
    """In the order of measurement: what is measured in any case first.

    Args:
        dtype: of U-Nets and blocks.
    """
    half = "bfloat16" if dtype == "float32" else dtype
    listed = [
        # Minutes each where half precision has no instructions.
        Cell(
            "operations",
            (kind, tokens, channels, own),
            own == half and tokens == max(TOKENS),
            turns,
        )
        for own in ("float32", half)
        for tokens, turns in TOKENS.items()
        for channels in CHANNELS
        for kind in KINDS
    ]
    listed += [
        Cell("generation", (), turns=15),
        Cell("block", (0.5, dtype)),
        Cell("unet", ("sd15", 512, 0.5, dtype)),
        Cell("cost", ("sd15", 512, 0.5, dtype), turns=6),
        Cell("adaptive", ("sd15", 512, dtype), turns=6),
    ]
    listed += [
        Cell("ragged", (images, tokens, channels, own), turns=6 if tokens == 4096 else 20)
        for tokens, channels, own in (
            (1024, 64, "float32"),
            (1024, 320, "float32"),
            (4096, 320, dtype),
        )
        for images in (2, 4, 8)
    ]
    listed += [
        Cell("nothing", ("sd15", 512, dtype), full=True),
        Cell("adaptive_cost", ("sd15", 512, dtype), full=True, turns=6),
    ]
    listed += [Cell("block", (ratio, dtype), full=True) for ratio in OTHER_RATIOS]
    listed += [
        Cell("unet", ("sd15", 512, ratio, dtype), full=True, turns=8) for ratio in OTHER_RATIOS
    ]
    listed += [
        Cell("compiled", ("sd15", 512, dtype), full=True, turns=10),
        Cell("unet", ("sd15", 1024, 0.5, dtype), full=True, turns=6),
        Cell("memory", ("sd15", 1024, dtype), full=True),
        Cell("unet", ("sdxl", 1024, 0.5, dtype), full=True, turns=6),
    ]
    listed += [
        Cell("gpu", ("sd15", 512, own, attention, batch))
        for own in ("float16", "bfloat16")
        for attention in gpu.ATTENTIONS
        for batch in (1, 4, LARGEST)
    ]
    return sorted(listed, key=lambda cell: cell.full)


def subject(architecture: str, pixels: int, dtype: str, where: torch.device) -> unets.Subject:
    return unets.subject(architecture, pixels, getattr(torch, dtype), where)


def measure_operations(where: torch.device, turns: int, kind, tokens, channels, dtype) -> Any:
    return operations.operation(kind, tokens, channels, getattr(torch, dtype), where, turns), {}


def measure_block(where: torch.device, turns: int, ratio, dtype) -> Any:
    return unets.block(subject("sd15", 512, dtype, where), ratio, turns)


def measure_unet(where: torch.device, turns: int, architecture, pixels, ratio, dtype) -> Any:
    of = subject(architecture, pixels, dtype, where)
    return unets.evaluation(of, ratio, turns)


def measure_cost(where: torch.device, turns: int, architecture, pixels, ratio, dtype) -> Any:
    return cost.at_ratio(subject(architecture, pixels, dtype, where), ratio, turns)


def measure_adaptive(where: torch.device, turns: int, architecture, pixels, dtype) -> Any:
    return unets.adaptive(subject(architecture, pixels, dtype, where), turns)


def measure_adaptive_cost(where: torch.device, turns: int, architecture, pixels, dtype) -> Any:
    return cost.at_threshold(subject(architecture, pixels, dtype, where), turns)


def measure_nothing(where: torch.device, turns: int, architecture, pixels, dtype) -> Any:
    return unets.nothing(subject(architecture, pixels, dtype, where), turns)


def measure_compiled(where: torch.device, turns: int, architecture, pixels, dtype) -> Any:
    return unets.compiled(subject(architecture, pixels, dtype, where), turns)


def measure_ragged(where: torch.device, turns: int, images, tokens, channels, dtype) -> Any:
    return ragged.ragged(images, tokens, channels, getattr(torch, dtype), where, turns)


def measure_generation(where: torch.device, turns: int) -> Any:
    return generation.generations(where, turns)


def measure_memory(where: torch.device, turns: int, architecture, pixels, dtype) -> Any:
    return {}, {"peak GiB": memory.peaks(architecture, pixels, dtype, str(where))}


def measure_gpu(
    where: torch.device, turns: int, architecture, pixels, dtype, attention, batch
) -> Any:
    own = getattr(torch, dtype)
    return gpu.evaluation(architecture, pixels, own, attention, batch, where, turns)


MEASURE: dict[str, Callable[..., Any]] = {
    "operations": measure_operations,
    "block": measure_block,
    "unet": measure_unet,
    "cost": measure_cost,
    "adaptive": measure_adaptive,
    "adaptive_cost": measure_adaptive_cost,
    "nothing": measure_nothing,
    "compiled": measure_compiled,
    "ragged": measure_ragged,
    "generation": measure_generation,
    "memory": measure_memory,
    "gpu": measure_gpu,
}
