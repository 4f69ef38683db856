"""The time stage: seconds an image of all rows, measured in turns in one process.

Rows take turns (A B C A B C ...), so that whatever slows the machine down falls on all of them;
speed-ups are medians of the ratios within a turn. Warm-up is whole generations on prompts that are
not timed. Recording is off. FLOPs, merged tokens and attention's share are counted in passes of
their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tqdm import tqdm

from experiments.accelerators.base import Method
from experiments.common import environment
from experiments.common.uncertainty import median_interval
from experiments.models.device import device
from experiments.painting import pipeline_call
from experiments.painting.store import Prompt
from experiments.timing.attention import finest_attentions, marked
from experiments.timing.batches import batch_of, cycled
from experiments.timing.free_merge import FreeMerge
from experiments.timing.memory import peak_memory_gb, reset_peak_memory
from experiments.timing.stopwatch import Stopwatch, traced
from experiments.timing.turns import TimedRow, Turns
from experiments.timing.work import count_work


@dataclass(frozen=True)
class Generation:
    """Seconds of one generation in total, in the denoising loop and of each evaluation, and the
    most memory in use."""

    total_s: float
    denoise_s: float
    evaluations_s: list[float]
    peak_gib: float | None


@dataclass
class Samples:
    """What the generations of all rows gave, by row.

    Attributes:
        batches: images a generation.
        first: of the first generation in the process.
        timed: a generation a turn; limits' rows are among them.
        counts: of `count_work`.
        limits: the row's free limit.
        shares: attention's share of an evaluation.
        errors: of rows that failed.
    """

    batches: dict[str, int]
    first: dict[str, Generation] = field(default_factory=dict)
    timed: dict[str, list[Generation]] = field(default_factory=dict)
    counts: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, TimedRow] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def time_rows(
    rows: list[TimedRow], baseline: str | None, prompts: list[Prompt], warmup: list[Prompt]
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
    cfg, samples = rows[0].cfg, take_samples(rows, prompts, warmup)
    batches = {samples.batches[row.name] for row in rows}
    return {
        "environment": environment.describe(device(cfg), cfg.dtype, cfg.attention),
        "batch_size": batches.pop() if len(batches) == 1 else None,
        "repeats": cfg.timing.repeats,
        "warmup": cfg.timing.warmup,
        "rows": {row.name: figures_of(row, row.cfg.against or baseline, samples) for row in rows},
    }


def take_samples(rows: list[TimedRow], prompts: list[Prompt], warmup: list[Prompt]) -> Samples:
    """Run all generations in turns; the arguments are those of `time_rows`."""
    options, wanted = rows[0].cfg.timing, rows[0].cfg.columns
    watch = Stopwatch(device(rows[0].cfg))
    samples = Samples({row.name: batch_of(row, prompts) for row in rows})
    paint = {name: cycled(prompts, batch) for name, batch in samples.batches.items()}
    heat = {name: cycled(warmup, batch) for name, batch in samples.batches.items()}
    total = (options.warmup + 1 + options.repeats + ("attention" in wanted)) * len(rows)
    with tqdm(total=total, desc="timing", unit="generation") as progress:
        turns = Turns(progress, samples.errors)

        def warm_up(which: list[TimedRow]) -> None:
            for _ in range(options.warmup):
                for name, sample in turns.take(which, generation, heat, watch).items():
                    samples.first.setdefault(name, sample)

        warm_up(rows)
        samples.counts = turns.take(rows, count_work, paint)
        if "limit" in wanted:
            samples.limits = free_limits(rows, samples.counts)
        limits = list(samples.limits.values())
        for row, free in samples.limits.items():
            for of_rows in (samples.batches, paint, heat):
                of_rows[free.name] = of_rows[row]
        progress.total += (options.warmup + options.repeats) * len(limits)
        warm_up(limits)
        for _ in range(options.repeats):
            for name, sample in turns.take([*rows, *limits], generation, paint, watch).items():
                samples.first.setdefault(name, sample)
                samples.timed.setdefault(name, []).append(sample)
        if "attention" in wanted:
            samples.shares = turns.take(rows, attention_share, paint, watch)
    return samples


def figures_of(row: TimedRow, against: str | None, samples: Samples) -> dict[str, Any]:
    """A row's figures in `timing.json`, or its error.

    Args:
        against: name of the row that its speed-up is relative to.
    """
    if row.name in samples.errors:
        return {"error": samples.errors[row.name]}
    own, batch = samples.timed[row.name], samples.batches[row.name]
    figures = summarise(row.method, own, batch) | without(samples.counts[row.name], "kept")
    figures["first_s_per_image"] = samples.first[row.name].total_s / batch
    if "attention" in row.cfg.columns:
        figures["attention_share"] = samples.shares.get(row.name)
    if against not in samples.timed or against in samples.errors:
        return figures
    reference = samples.timed[against]
    each = batch / samples.batches[against]  # seconds an image, not a generation
    figures |= ratio_figures("speedup", reference, own, each)
    free = samples.limits.get(row.name)
    if free is not None and free.name not in samples.errors:
        limit = samples.timed[free.name]
        figures |= ratio_figures("limit", reference, limit, each)
        figures |= ratio_figures("of_limit", limit, own, 1.0)
    return figures


def free_limits(rows: list[TimedRow], counts: dict[str, dict[str, Any]]) -> dict[str, TimedRow]:
    """Of each row that dropped tokens, a row which drops as many for nothing."""
    limits = {}
    for row in rows:
        kept = counts.get(row.name, {}).get("kept")
        if kept:
            free = FreeMerge(kept)
            limits[row.name] = TimedRow(f"{row.name}: free merge", row.cfg, free)
    return limits


def ratio_figures(
    name: str, reference: list[Generation], own: list[Generation], each: float
) -> dict[str, float]:
    """Median and interval of the ratios reference / own within a turn, times `each`."""
    pairs = zip(reference, own, strict=True)
    found = median_interval([each * base.total_s / sample.total_s for base, sample in pairs])
    return {
        name: found.value,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_level": found.level,
    }


def without(figures: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in figures.items() if k != key}


def generation(pipe, row: TimedRow, prompts: list[Prompt], watch: Stopwatch) -> Generation:
    """One timed generation."""
    reset_peak_memory(watch.cuda)
    with row.method.attach(pipe), traced(pipe, watch) as trace:
        watch.synchronise()
        start = watch.mark()
        pipeline_call.generate(pipe, row.cfg, prompts)
        end = watch.mark()
        watch.synchronise()
    return Generation(
        total_s=watch.seconds(start, end),
        denoise_s=watch.seconds(trace.begins[0], trace.decode),
        evaluations_s=[watch.seconds(b, e) for b, e in zip(trace.begins, trace.ends, strict=True)],
        peak_gib=peak_memory_gb(watch.cuda),
    )


def attention_share(pipe, row: TimedRow, prompts: list[Prompt], watch: Stopwatch) -> float:
    """Share of the U-Net's time that its finest self-attentions take, in one generation."""
    attentions = list(finest_attentions(pipe.unet).values())
    with (
        row.method.attach(pipe),
        traced(pipe, watch) as trace,
        marked(attentions, watch) as spans,
    ):
        pipeline_call.generate(pipe, row.cfg, prompts)
        watch.synchronise()
    whole = sum(watch.seconds(b, e) for b, e in zip(trace.begins, trace.ends, strict=True))
    return sum(watch.seconds(b, e) for b, e in spans) / whole


def summarise(method: Method, samples: list[Generation], batch: int) -> dict[str, Any]:
    totals = [s.total_s / batch for s in samples]
    by_kind: dict[bool | None, list[float]] = {}
    for sample in samples:
        for i, seconds in enumerate(sample.evaluations_s):
            by_kind.setdefault(method.matches_at(i), []).append(seconds)
    every = [seconds for sample in samples for seconds in sample.evaluations_s]
    peaks = [s.peak_gib for s in samples if s.peak_gib is not None]
    return {
        "batch_size": batch,
        "s_per_image": median(totals),
        "s_per_image_all": totals,
        "denoise_s_per_image": median(s.denoise_s / batch for s in samples),
        "s_per_evaluation": median(every),
        "s_per_evaluation_match": _median(by_kind.get(True)),
        "s_per_evaluation_reuse": _median(by_kind.get(False)),
        "evaluations": len(samples[0].evaluations_s),
        "peak_memory_gb": max(peaks) if peaks else None,
    }


def _median(values: list[float] | None) -> float | None:
    return median(values) if values else None
