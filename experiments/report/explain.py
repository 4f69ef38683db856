"""The table's columns on request, `columns=[...]`: cells, and the notes that say what they are."""

from __future__ import annotations

from collections.abc import Callable

from experiments.report.cells import NONE, UNDECIDED, percent, seconds
from experiments.report.run_folder import Equivalent, Row, Run

Cell = Callable[[Row], str]
SHOWN = {"plms": "PLMS", "dpm++2m": "DPM++"}
VERDICTS = {"higher": ("better", "worse"), "lower": ("worse", "better")}
NOTES = {
    "tokens": "Tokens merged: of those that a merging block is given, mean over images, blocks and "
    "evaluations.",
    "gflops": "GFLOPs saved: an image, against the baseline.",
    "attention": "Attention's share: of a U-Net evaluation's time, what self-attention in the "
    "blocks with the most tokens takes, without merging and un-merging.",
    "limit": "Free limit: the speed-up of the same U-Net whose blocks drop as many tokens as the "
    "row did on the average of its batch and get them back for nothing, in the same turns; in "
    "brackets the share of that speed which the row has.",
    "seconds": "First s/im: the row's first generation in the process; s/im are steady ones.",
    "steps": "Steps of the baseline that take the row's measured time; by the paired 95 % interval "
    "of its difference from them, prompt by prompt, the row is better, worse, or ≈ (contains 0).",
}


def explaining_columns(run: Run) -> list[tuple[str, Cell]]:
    """(head, cell) of each column that the run's table was asked for."""
    wanted = run.extra_columns
    columns: list[tuple[str, Cell]] = []
    if "tokens" in wanted:
        columns.append(("tokens merged", _tokens))
    if "gflops" in wanted:
        columns.append(("GFLOPs saved", lambda row: _saved(run, row)))
    if "attention" in wanted:
        columns.append(("attention share", lambda row: percent(row.timing.get("attention_share"))))
    if "limit" in wanted:
        columns.append(("free limit", _limit))
    if "seconds" in wanted:
        columns.append(("first s/im", lambda row: seconds(row.timing.get("first_s_per_image"))))
    if "steps" in wanted:
        for scheduler, name in SHOWN.items():
            columns.append((f"= {name} steps", _steps(run, scheduler)))
    return columns


def explaining_notes(run: Run) -> list[str]:
    return [NOTES[column] for column in run.extra_columns]


def verdicts(run: Run, found: Equivalent) -> dict[str, str]:
    """{column: better, worse or ≈} of a row against the baseline at equal time."""
    told = {}
    for column in run.quality_columns():
        difference, better = found.differences.get(run.metric(column)), run.better(column)
        if difference is None or better is None:
            continue
        higher, lower = VERDICTS[better]
        if difference.excludes(0):
            told[column] = higher if difference.value > 0 else lower
        else:
            told[column] = UNDECIDED
    return told


def _tokens(row: Row) -> str:
    merged, given = row.timing.get("tokens_merged"), row.timing.get("tokens_given")
    return NONE if merged is None else f"{merged:,.0f} of {given:,.0f}"


def _saved(run: Run, row: Row) -> str:
    own = row.timing.get("gflops_per_image")
    whole = run.baseline and run.baseline.timing.get("gflops_per_image")
    if own is None or whole is None or row is run.baseline:
        return NONE
    return f"{whole - own:,.1f} ({100 * (whole - own) / whole:.0f} %)"


def _limit(row: Row) -> str:
    limit, reached = row.timing.get("limit"), row.timing.get("of_limit")
    return NONE if limit is None else f"{limit:.2f}× ({100 * reached:.1f} %)"


def _steps(run: Run, scheduler: str) -> Cell:
    def cell(row: Row) -> str:
        found = run.equivalents.get(row.name, {}).get(scheduler)
        if found is None:
            return NONE
        told = [f"{column} {verdict}" for column, verdict in verdicts(run, found).items()]
        return f"{found.steps}" + (f" ({', '.join(told)})" if told else "")

    return cell
