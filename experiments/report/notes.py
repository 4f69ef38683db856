"""The notes under a table: what a reader must know before comparing its numbers."""

from __future__ import annotations

from typing import Any

from experiments.report.published import baseline_noise
from experiments.report.run_folder import Run
from experiments.report.table import DAGGER

LISTED = 8  # captions named in full
SHARED = ("model.", "generation.", "dtype", "attention", "seed")


def notes_of(run: Run) -> list[str]:
    """Plain, unescaped sentences, the ones that qualify everything first."""
    return [
        *_stages(run),
        *_failures(run),
        *_marks(run),
        *_images(run),
        *([] if run.scores is None else run.scores.notes),
        *_uncertainty(run),
        *_timing(run),
        *_published(run),
        *map(str, run.experiment.get("notes") or []),
    ]


def _stages(run: Run) -> list[str]:
    notes = []
    if run.scores is None:
        notes.append("The stage evaluate was not run: there are no quality figures.")
    if run.timing is None:
        notes.append(
            "The stage time was not run: there are no seconds, speed-ups or GFLOPs (they are "
            "never taken from generation runs)."
        )
    absent = [row.name for row in run.rows if row.record["status"] == "not run"]
    if absent:
        notes.append(f"Not generated yet: {', '.join(absent)}.")
    for row in run.rows:
        painted, measured = row.record.get("images"), run.images(row)
        if not row.failed and painted and measured != painted:
            notes.append(
                f"Row {row.name}: {painted} images are painted, the figures are of {measured}; "
                "run the stage evaluate."
            )
    return notes


def _failures(run: Run) -> list[str]:
    failed = [f"Row {r.name} failed: {r.record.get('error')}" for r in run.rows if r.failed]
    untimed = [
        f"Row {row.name} could not be timed: {row.timing['error']}"
        for row in run.rows
        if row.timing.get("error")
    ]
    return failed + untimed


def _marks(run: Run) -> list[str]:
    marked = [row.name for row in run.rows if row.record.get("order_dependent")]
    if not marked:
        return []
    return [
        f"{DAGGER} order-dependent: an image of {', '.join(marked)} depends on the images painted "
        "before or beside it."
    ]


def _images(run: Run) -> list[str]:
    notes = []
    counts = sorted({run.images(row) for row in run.rows if not row.failed})
    prompts = run.manifest.get("prompts") or []
    if counts:
        span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        text = f"Images: {span} a row, painted as PNG, one seed an image, the same in every row."
        if run.manifest.get("rule"):
            text += f" Captions: {_rule(run.manifest['rule'])}."
        if run.manifest.get("truncated"):
            limit = run.manifest.get("token_limit")
            text += f" {run.manifest['truncated']} captions exceed {limit} tokens and were cut."
        notes.append(text)
    if prompts and len(prompts) <= LISTED:
        listed = "; ".join(f"“{p['text']}” (seed {p['seed']})" for p in prompts)
        notes.append(f"The captions: {listed}.")
    settings = [row.record.get("settings") or {} for row in run.rows if not row.failed]
    settings = [s for s in settings if s]
    if settings:
        shared = {
            key: value
            for key, value in settings[0].items()
            if key.startswith(SHARED)
            and value is not None
            and all(other.get(key) == value for other in settings)
        }
        if shared:
            notes.append(f"Settings of all rows: {_listed(shared)}.")
    return notes


def _uncertainty(run: Run) -> list[str]:
    if run.scores is None:
        return []
    if not any(e is not None for row in run.scores.errors.values() for e in row.values()):
        return []
    return [
        "± is the standard error of the mean over the images of a row; Fréchet distances carry no "
        "interval here, and one seed an image was painted."
    ]


def _timing(run: Run) -> list[str]:
    if run.timing is None:
        return []
    repeats, batch = run.timing.get("repeats"), run.timing.get("batch_size")
    notes = [
        f"Seconds an image: median of {repeats} whole generations at batch size {batch}, rows "
        "taking turns in one process. Speed-up: median of the ratios baseline / row within a turn, "
        "in brackets the smallest and largest of them."
    ]
    environment = run.timing.get("environment") or {}
    if environment:
        notes.append(f"Measured on: {_listed(environment)}.")
    return notes


def _published(run: Run) -> list[str]:
    rows = [row.published for row in run.rows if row.published is not None]
    if not run.experiment.get("published"):
        return []
    if not rows:
        return ["No row here corresponds to one of the published table."]
    first = rows[0]
    fid, seconds = baseline_noise()
    return [
        f"Published: {first.source}; {first.gpu}, FID by {first.fid_tool} (it resizes otherwise "
        f"than torch-fidelity), unknown: {', '.join(first.unknown)}. CA-ToMe's two tables give the "
        f"same baseline {fid:.2f} FID and {seconds:.2f} s apart: so large is their noise."
    ]


def _rule(rule: Any) -> str:
    return _listed(rule) if isinstance(rule, dict) else str(rule)


def _listed(values: dict) -> str:
    parts = (
        f"{key} {_shown(value)}" for key, value in values.items() if value not in (None, "", {})
    )
    return ", ".join(parts)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
