"""The time stage: seconds an image of all rows, measured in turns in one process.

Rows take turns (A B C A B C ...), so that whatever slows the machine down falls on all of them;
speed-ups are medians of the ratios within a turn. Warm-up is whole generations on prompts that are
not timed. Recording is off. FLOPs and merged tokens are counted in a pass of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count
from tqdm import tqdm

from experiments import environment, pipelines
from experiments.config import LARGEST, device
from experiments.methods.base import Method
from experiments.store import Prompt
from experiments.uncertainty import median_interval


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


def reset_peak_memory(cuda: bool) -> None:
    """Start a new high-water mark: of CUDA's allocator, or of the process's resident memory."""
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        return
    with suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_gb(cuda: bool) -> float | None:
    """GiB at the high-water mark since `reset_peak_memory`; None where it cannot be read."""
    if cuda:
        return torch.cuda.max_memory_allocated() / 2**30
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    line = next((x for x in status.splitlines() if x.startswith("VmHWM:")), None)
    return int(line.split()[1]) / 2**20 if line else None


@dataclass
class Row:
    """What the time stage needs of a row."""

    name: str
    cfg: DictConfig
    method: Method


def time_rows(
    rows: list[Row], baseline: str | None, prompts: list[Prompt], warmup: list[Prompt]
) -> dict[str, Any]:
    """Time every row; a row that fails is reported with its error and the others go on.

    Args:
        rows: all with the same model, device, repeats and warm-up.
        baseline: name of the row that speed-ups are relative to where a row's `against` names no
            other; may be absent.
        prompts: the first `timing.batch_size`, from the start again where they are fewer, are
            painted again and again.
        warmup: others.

    Returns:
        {"environment", "batch_size", "repeats", "rows": {name: figures}}; seconds are medians,
        `batch_size` None where rows differ.
    """
    options = rows[0].cfg.timing
    where = device(rows[0].cfg)
    watch = Stopwatch(where)
    batches = {row.name: batch_of(row, prompts) for row in rows}
    samples: dict[str, list[dict[str, Any]]] = {row.name: [] for row in rows}
    counts: dict[str, dict[str, Any]] = {}
    errors: dict[str, str] = {}
    turns = [("count", 0)] + [("warm-up", i) for i in range(options.warmup)]
    turns += [("time", i) for i in range(options.repeats)]
    with tqdm(total=len(turns) * len(rows), desc="timing", unit="generation") as progress:
        for kind, _ in turns:
            for row in rows:
                progress.set_postfix_str(f"{kind} {row.name}")
                progress.update(1)
                if row.name in errors:
                    continue
                pipe = pipelines.load(row.cfg)
                try:
                    batch = batches[row.name]
                    if kind == "count":
                        counts[row.name] = count_work(pipe, row, cycled(prompts, batch))
                    elif kind == "warm-up":
                        generation(pipe, row, cycled(warmup, batch), watch)
                    else:
                        painted = cycled(prompts, batch)
                        samples[row.name].append(generation(pipe, row, painted, watch))
                except (RuntimeError, ValueError) as error:
                    errors[row.name] = f"{type(error).__name__}: {error}".splitlines()[0]
    figures: dict[str, Any] = {}
    for row in rows:
        if row.name in errors:
            figures[row.name] = {"error": errors[row.name]}
            continue
        batch = batches[row.name]
        figures[row.name] = summarise(row.method, samples[row.name], batch) | counts[row.name]
        against = row.cfg.against or baseline
        reference = samples.get(against)
        if reference and against not in errors:
            each = batch / batches[against]  # seconds an image, not a generation
            ratios = [
                each * base["total"] / own["total"]
                for base, own in zip(reference, samples[row.name], strict=True)
            ]
            interval = median_interval(ratios)
            figures[row.name] |= {
                "speedup": interval.value,
                "speedup_low": interval.low,
                "speedup_high": interval.high,
                "speedup_level": interval.level,
            }
    cfg = rows[0].cfg
    different = len(set(batches.values())) > 1
    return {
        "environment": environment.describe(where, cfg.dtype, cfg.attention),
        "batch_size": None if different else batches[rows[0].name],
        "repeats": options.repeats,
        "warmup": options.warmup,
        "rows": figures,
    }


def cycled(prompts: list[Prompt], count: int) -> list[Prompt]:
    return [prompts[i % len(prompts)] for i in range(count)]


def batch_of(row: Row, prompts: list[Prompt]) -> int:
    """`timing.batch_size`; `largest` is the largest power of two that CUDA's memory holds, by
    trying two steps of each."""
    if row.cfg.timing.batch_size != LARGEST:
        return row.cfg.timing.batch_size
    short = OmegaConf.merge(row.cfg, {"generation": {"steps": 2}})
    batch = 1
    while fits(row, short, cycled(prompts, 2 * batch)):
        batch *= 2
    return batch


def fits(row: Row, cfg: DictConfig, prompts: list[Prompt]) -> bool:
    pipe = pipelines.load(cfg)
    try:
        with row.method.attach(pipe):
            pipelines.generate(pipe, cfg, prompts)
    except torch.OutOfMemoryError:
        return False
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return True


def generation(pipe, row: Row, prompts: list[Prompt], watch: Stopwatch) -> dict[str, Any]:
    """One timed generation: seconds in total, in the denoising loop and of each evaluation."""
    reset_peak_memory(watch.cuda)
    with row.method.attach(pipe), traced(pipe, watch) as trace:
        watch.synchronise()
        start = watch.mark()
        pipelines.generate(pipe, row.cfg, prompts)
        end = watch.mark()
        watch.synchronise()
    return {
        "total": watch.seconds(start, end),
        "denoise": watch.seconds(trace.begins[0], trace.decode),
        "evaluations": [watch.seconds(b, e) for b, e in zip(trace.begins, trace.ends, strict=True)],
        "peak_gb": peak_memory_gb(watch.cuda),
    }


def summarise(method: Method, samples: list[dict[str, Any]], batch: int) -> dict[str, Any]:
    totals = [s["total"] / batch for s in samples]
    by_kind: dict[bool | None, list[float]] = {}
    for sample in samples:
        for i, seconds in enumerate(sample["evaluations"]):
            by_kind.setdefault(method.matches_at(i), []).append(seconds)
    every = [seconds for sample in samples for seconds in sample["evaluations"]]
    peaks = [s["peak_gb"] for s in samples if s["peak_gb"] is not None]
    return {
        "batch_size": batch,
        "s_per_image": median(totals),
        "s_per_image_all": totals,
        "denoise_s_per_image": median(s["denoise"] / batch for s in samples),
        "s_per_evaluation": median(every),
        "s_per_evaluation_match": _median(by_kind.get(True)),
        "s_per_evaluation_reuse": _median(by_kind.get(False)),
        "evaluations": len(samples[0]["evaluations"]),
        "peak_memory_gb": max(peaks) if peaks else None,
    }


def _median(values: list[float] | None) -> float | None:
    return median(values) if values else None


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


def count_work(pipe, row: Row, prompts: list[Prompt]) -> dict[str, Any]:
    """GFLOPs an image and the share of source tokens merged, from an untimed generation."""
    with row.method.attach(pipe, record=True) as attached, counted_flops() as counter:
        pipelines.generate(pipe, row.cfg, prompts)
    facts = row.method.per_image(attached, len(prompts))
    shares = [f["merged_share"] for f in facts if "merged_share" in f]
    return {
        "gflops_per_image": counter.get_total_flops() / len(prompts) / 1e9,
        "attention_kernels": attention_kernels(counter),
        "merged_share": sum(shares) / len(shares) if shares else None,
    }
