"""The notes under a table: what a reader must know before comparing its numbers."""

from __future__ import annotations

from experiments.metrics.registry import DISTANCES
from experiments.report.card import departing_rows
from experiments.report.cells import DAGGER, DOUBLE_DAGGER, UNDECIDED
from experiments.report.explain import explaining_notes
from experiments.report.published import baseline_noise
from experiments.report.run_folder import Run

LISTED = 8  # captions named in full


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
        *explaining_notes(run),
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
    notes = []
    marked = [row.name for row in run.rows if row.record.get("order_dependent")]
    if marked:
        notes.append(
            f"{DAGGER} order-dependent: an image of {', '.join(marked)} depends on the images "
            "painted before or beside it."
        )
    departing = departing_rows(run)
    for name, keys in departing.items():
        notes.append(
            f"{DOUBLE_DAGGER} row {name} differs from the baseline in {', '.join(keys)}, which "
            "the experiment does not vary: do not compare the two."
        )
    return notes


def _images(run: Run) -> list[str]:
    notes = []
    counts = sorted({run.images(row) for row in run.rows if not row.failed})
    prompts = run.manifest.get("prompts") or []
    if counts:
        span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        text = f"Images: {span} a row"
        # Of somebody else's pictures nothing more is known.
        painted = any(row.record.get("settings") for row in run.rows)
        text += ", painted as PNG, one seed an image." if painted else "."
        notes.append(text)
    if prompts and len(prompts) <= LISTED:
        listed = "; ".join(f"“{p['text']}” (seed {p['seed']})" for p in prompts)
        notes.append(f"The captions: {listed}.")
    return notes


def _uncertainty(run: Run) -> list[str]:
    notes = []
    if run.means and any(run.means.values()):
        notes.append(
            "± is half of the 95 % interval of a mean over images, by a bootstrap over prompts "
            "(2,000 draws; all images of a prompt together)."
        )
    marked = [
        (row, column)
        for row in run.rows
        for column in run.quality_columns()
        if (d := run.difference(row, column)) is not None and not d.excludes(0)
    ]
    if marked:
        notes.append(
            f"{UNDECIDED}: the 95 % interval of the paired difference from the baseline, image by "
            "image, contains 0: no difference is shown."
        )
    if any(run.metric(column) in DISTANCES for column in run.quality_columns()):
        repeated = any(run.scores.replicates.values())
        notes.append(
            "± of a Fréchet distance: Student's 95 % interval over the replicates, each computed "
            "by itself; the printed value is their mean."
            if repeated
            else "Fréchet distances carry no interval: one replicate was painted, and resampling "
            "its images would bias them (replicates=3 gives intervals)."
        )
    return notes


def _timing(run: Run) -> list[str]:
    if run.timing is None:
        return []
    repeats, batch = run.timing.get("repeats"), run.timing.get("batch_size")
    sized = f"at batch size {batch}" if batch else "at the row's batch size"
    notes = [
        f"Seconds an image: median of {repeats} whole generations {sized}, rows "
        "taking turns in one process. Speed-up: median of the ratios baseline / row within a turn, "
        f"in brackets {_span(run)}."
    ]
    references = {row.name: row.record.get("against") for row in run.rows}
    own = [f"{name} to {other}" for name, other in references.items() if other not in (None, name)]
    if own:
        notes.append(f"Speed-ups are relative to rows' own baselines: {', '.join(own)}.")
    return notes


def _span(run: Run) -> str:
    levels = {row.timing.get("speedup_level") for row in run.rows} - {None}
    if not levels:
        return "the smallest and largest of them"
    return f"an interval of that median by order statistics, which covers it in {min(levels):.0%}"


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
