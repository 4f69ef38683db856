"""Floating point operations and merged tokens of a generation, counted in a pass of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from experiments.painting import pipeline_call
from experiments.painting.store import Prompt
from experiments.timing.turns import TimedRow


def _cpu_attention_flops(query, key, value, *args, out_val=None, **kwargs) -> int:
    return sdpa_flop_count(query, key, value)


# PyTorch counts CUDA's fused attention kernels but not the CPU's.
ATTENTION_FORMULA: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _cpu_attention_flops
}


@contextmanager
def counted_flops() -> Iterator[FlopCounterMode]:
    """Counts floating point operations, 2 a multiply-add, whichever attention kernel runs."""
    with FlopCounterMode(display=False, custom_mapping=ATTENTION_FORMULA) as counter:
        yield counter


def attention_kernels(counter: FlopCounterMode) -> list[str]:
    """The kernels that attention dispatched to, by PyTorch's names; `math` stands for plain
    matrix products, which leave no name of their own."""
    names = {str(op) for op in counter.get_flop_counts().get("Global", {})}
    kernels = sorted(n.split(".")[-1].strip("_") for n in names if "scaled_dot_product" in n)
    return kernels or ["math"]


def count_work(pipe, row: TimedRow, prompts: list[Prompt]) -> dict[str, Any]:
    """GFLOPs an image and what merged, from an untimed generation; `kept` is what `FreeMerge`
    takes."""
    with row.method.attach(pipe, record=True) as attached, counted_flops() as counter:
        pipeline_call.generate(pipe, row.cfg, prompts)
    tokens = row.method.tokens(attached)
    each = [pair for pairs in tokens.values() for pair in pairs]
    facts = row.method.per_image(attached, len(prompts))
    shares = [f["merged_share"] for f in facts if "merged_share" in f]
    return {
        "gflops_per_image": counter.get_total_flops() / len(prompts) / 1e9,
        "attention_kernels": attention_kernels(counter),
        "merged_share": sum(shares) / len(shares) if shares else None,
        "tokens_given": sum(given for given, _ in each) / len(each) if each else None,
        "tokens_merged": sum(given - kept for given, kept in each) / len(each) if each else None,
        "kept": {
            name: [max(1, round(kept)) for _, kept in pairs] for name, pairs in tokens.items()
        },
    }
