"""The time stage: seconds an image of all rows, measured in turns in one process.

Rows take turns (A B C A B C ...), so that whatever slows the machine down falls on all of them;
speed-ups are medians of the ratios within a turn. Warm-up is whole generations on prompts that are
not timed. Recording is off. FLOPs, merged tokens and attention's share are counted in passes of
their own.
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
from experiments.explain.attention import finest_attentions, marked
from experiments.explain.free_merge import FreeMerge
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
    """What the time stage needs of a row; `of` is the row whose free limit it is."""

    name: str
    cfg: DictConfig
    method: Method
    of: str | None = None


@dataclass
class Turns:
    """Work on rows in turn; a row that fails is reported in `errors` and takes no further part."""

    progress: tqdm
    errors: dict[str, str] = field(default_factory=dict)

    def take(
        self,
        rows: list[Row],
        work: Callable[..., Any],
        prompts: dict[str, list[Prompt]],
        *more: Any,
    ) -> dict[str, Any]:
        """{row: `work(pipe, row, its prompts, *more)`} of the rows that did not fail."""
        done = {}
        for row in rows:
            self.progress.set_postfix_str(f"{work.__name__} {row.name}")
            self.progress.update(1)
            if row.name in self.errors:
                continue
            try:
                done[row.name] = work(pipelines.load(row.cfg), row, prompts[row.name], *more)
            except (RuntimeError, ValueError) as error:
                self.errors[row.name] = f"{type(error).__name__}: {error}".splitlines()[0]
        return done


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
        `batch_size` None where rows differ. `columns` of the configuration adds figures:
        `attention` the share of an evaluation that the finest self-attentions take, `limit` the
        speed-up of merging for nothing and how much of that speed the row has.
    """
    options, wanted = rows[0].cfg.timing, rows[0].cfg.columns
    where = device(rows[0].cfg)
    watch = Stopwatch(where)
    batches = {row.name: batch_of(row, prompts) for row in rows}
    paint = {row.name: cycled(prompts, batches[row.name]) for row in rows}
    heat = {row.name: cycled(warmup, batches[row.name]) for row in rows}
    total = (options.warmup + 1 + options.repeats + ("attention" in wanted)) * len(rows)
    with tqdm(total=total, desc="timing", unit="generation") as progress:
        turns = Turns(progress)
        first = [turns.take(rows, generation, heat, watch) for _ in range(options.warmup)]
        counts = turns.take(rows, count_work, paint)
        limits = free_limits(rows, counts) if "limit" in wanted else []
        for free in limits:
            batches[free.name], paint[free.name] = batches[free.of], paint[free.of]
            heat[free.name] = heat[free.of]
        progress.total += (options.warmup + options.repeats) * len(limits)
        for _ in range(options.warmup):
            turns.take(limits, generation, heat, watch)
        timed = [
            turns.take(rows + limits, generation, paint, watch) for _ in range(options.repeats)
        ]
        if "attention" in wanted:
            shares = turns.take(rows, attention_share, paint, watch)
    errors = turns.errors
    samples = {name: [turn[name] for turn in timed] for name in batches if name not in errors}
    free_of = {free.of: free.name for free in limits}
    figures: dict[str, Any] = {}
    for row in rows:
        if row.name in errors:
            figures[row.name] = {"error": errors[row.name]}
            continue
        own, batch = samples[row.name], batches[row.name]
        figures[row.name] = summarise(row.method, own, batch) | without(counts[row.name], "kept")
        figures[row.name]["first_s_per_image"] = (first or timed)[0][row.name]["total"] / batch
        if "attention" in wanted:
            figures[row.name]["attention_share"] = shares.get(row.name)
        against = row.cfg.against or baseline
        if against not in samples:
            continue
        each = batch / batches[against]  # seconds an image, not a generation
        figures[row.name] |= ratio_figures("speedup", samples[against], own, each)
        free = samples.get(free_of.get(row.name))
        if free is not None:
            figures[row.name] |= ratio_figures("limit", samples[against], free, each)
            figures[row.name] |= ratio_figures("of_limit", free, own, 1.0)
    cfg = rows[0].cfg
    different = len(set(batches.values())) > 1
    return {
        "environment": environment.describe(where, cfg.dtype, cfg.attention),
        "batch_size": None if different else batches[rows[0].name],
        "repeats": options.repeats,
        "warmup": options.warmup,
        "rows": figures,
    }


def free_limits(rows: list[Row], counts: dict[str, dict[str, Any]]) -> list[Row]:
    """A row for each that dropped tokens, which drops as many for nothing."""
    limits = []
    for row in rows:
        kept = counts.get(row.name, {}).get("kept")
        if kept:
            limits.append(Row(f"{row.name}: free merge", row.cfg, FreeMerge(kept), row.name))
    return limits


def ratio_figures(
    name: str, reference: list[dict[str, Any]], own: list[dict[str, Any]], each: float
) -> dict[str, float]:
    """Median and interval of the ratios reference / own within a turn, times `each`."""
    pairs = zip(reference, own, strict=True)
    found = median_interval([each * base["total"] / sample["total"] for base, sample in pairs])
    return {
        name: found.value,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_level": found.level,
    }


def without(figures: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in figures.items() if k != key}


def cycled(prompts: list[Prompt], count: int) -> list[Prompt]:
    return [prompts[i % len(prompts)] for i in range(count)]


def batch_of(row: Row, prompts: list[Prompt]) -> int:
    """`timing.batch_size`; `largest` is the largest power of two that CUDA's memory holds, by
    trying two steps of each."""
    if row.cfg.timing.batch_size != LARGEST:
        return row.cfg.timing.batch_size
    short = OmegaConf.merge(row.cfg, {"generation": {"steps": 2}})

    def attempt(batch: int) -> None:
        pipe = pipelines.load(short)
        with row.method.attach(pipe):
            pipelines.generate(pipe, short, cycled(prompts, batch))

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


def attention_share(pipe, row: Row, prompts: list[Prompt], watch: Stopwatch) -> float:
    """Share of the U-Net's time that its finest self-attentions take, in one generation."""
    attentions = list(finest_attentions(pipe.unet).values())
    with (
        row.method.attach(pipe),
        traced(pipe, watch) as trace,
        marked(attentions, watch) as spans,
    ):
        pipelines.generate(pipe, row.cfg, prompts)
        watch.synchronise()
    whole = sum(watch.seconds(b, e) for b, e in zip(trace.begins, trace.ends, strict=True))
    return sum(watch.seconds(b, e) for b, e in spans) / whole


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
    """GFLOPs an image and what merged, from an untimed generation; `kept` is what `FreeMerge`
    takes."""
    with row.method.attach(pipe, record=True) as attached, counted_flops() as counter:
        pipelines.generate(pipe, row.cfg, prompts)
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
