"""ToMe, adaptive-only, cache-only and CA-ToMe through the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import catome
from catome.matching import require_tiles
from experiments.accelerators.base import Method
from experiments.accelerators.schedule_file import read_schedule

PAPER_NAMES = {
    "config1": "config 1",
    "config2": "config 2",
    "config3": "config 3",
    "config4": "config 4",
    "adaptive": "adaptive",
    "every5": "every 5",
}


Schedule = catome.EveryStep | catome.Interval | catome.Checkpoints | catome.ByBlock


def parse_refresh(value: Any) -> tuple[Schedule, str]:
    """`every`, an interval k, a list of evaluations, a key of `catome.PAPER`, or a schedule's file
    (`*.json`); with its name."""
    if value == "every":
        return catome.EveryStep(), "every step"
    if isinstance(value, str) and value in catome.PAPER:
        return catome.PAPER[value], PAPER_NAMES[value]
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 1:  # the same work under one identity
            return catome.EveryStep(), "every step"
        return catome.Interval(value), f"every {value}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return catome.Checkpoints(list(value)), str(list(value))
    if isinstance(value, str) and value.endswith(".json"):
        return read_schedule(value)
    allowed = (
        "every, an interval >= 1, a sorted list of evaluations, a schedule's .json file, or "
        f"{', '.join(catome.PAPER)}"
    )
    raise ValueError(f"refresh={value}: must be {allowed}")


def rescale(schedule: Schedule, evaluations: int) -> Schedule:
    """The schedule with every list that knows its number of evaluations stretched to this one."""
    if isinstance(schedule, catome.ByBlock):
        parts = {name: rescale(part, evaluations) for name, part in schedule.schedules.items()}
        return catome.ByBlock(parts, rescale(schedule.otherwise, evaluations))
    known = isinstance(schedule, catome.Checkpoints) and schedule.evaluations is not None
    return schedule.rescaled(evaluations) if known else schedule


class TokenMergingMethod(Method):
    """A row that merges tokens; arguments are those of `catome.TokenMerging`.

    Exactly one of `ratio` (share of all tokens, 0 to 0.75 at stride 2) and `threshold` (cosine
    similarity) is a number; `refresh` as `parse_refresh` reads it. `rescale` stretches lists that
    know what number of evaluations they were made for to the present one, under another name.
    """

    revision = 1

    def __init__(
        self,
        name: str,
        label: str,
        ratio: float | None = None,
        threshold: float | None = None,
        refresh: Any = "every",
        rescale: bool = False,
        **options: Any,
    ):
        super().__init__(name)
        if (ratio is None) == (threshold is None):
            raise ValueError(
                f"ratio={ratio} and threshold={threshold}: exactly one must be a number, "
                "the other null"
            )
        select = catome.Ratio(ratio) if threshold is None else catome.Threshold(threshold)
        schedule, self.caching = parse_refresh(refresh)
        if not isinstance(rescale, bool):
            raise ValueError(f"rescale={rescale}: must be true or false")
        self.label = label
        self.rescale = rescale
        self.merging = catome.TokenMerging(select=select, refresh=schedule, **options)
        self.order_dependent = self.merging.cache == "official" or self.merging.count == "batch"

    def settings(self) -> dict[str, Any]:
        # The label and the name of a list say nothing about the images: equal work is shared.
        return {"name": "token_merging", **self.merging.describe()}

    def columns(self) -> dict[str, Any]:
        select, refresh = self.merging.select, self.merging.refresh
        interval = 1 if isinstance(refresh, catome.EveryStep) else getattr(refresh, "every", None)
        return {
            "method": self.label,
            "threshold": getattr(select, "threshold", None),
            "ratio": getattr(select, "ratio", None),
            "caching": self.caching,
            "interval": interval,
        }

    def prepare(self, evaluations: int) -> None:
        if not self.rescale:
            return
        rescaled = rescale(self.merging.refresh, evaluations)
        if rescaled != self.merging.refresh:
            self.merging = replace(self.merging, refresh=rescaled)
            self.caching = f"{self.caching}, rescaled to {evaluations}"

    def check_latent(self, height: int, width: int) -> None:
        for level in range(self.merging.max_downsample.bit_length()):
            require_tiles(height >> level, width >> level, self.merging.window)

    def warnings(self, evaluations: int) -> list[str]:
        warnings, late = [], self.merging.unreached(evaluations)
        if late:
            warnings.append(
                f"method.refresh: entries {list(late)} lie beyond the last of {evaluations} "
                "evaluations"
            )
        made_for = {c.evaluations for c in self.merging.checkpoints()} - {None, evaluations}
        if made_for:
            warnings.append(
                f"method.refresh: made for {min(made_for)} evaluations and used at {evaluations}; "
                "method.rescale=true stretches it"
            )
        return warnings

    def matches_at(self, evaluation: int) -> bool:
        # A generation's first evaluation always matches: blocks hold nothing then.
        return evaluation == 0 or self.merging.matches_at(evaluation)

    @contextmanager
    def attach(
        self, pipe, record: bool = False, on_match: Callable[[str], None] | None = None
    ) -> Iterator[catome.Handle]:
        def tell(entry: catome.Record) -> None:
            if entry.matched and on_match is not None:
                kept = ", ".join(map(str, entry.tokens_out))
                on_match(f"evaluation {entry.step} {entry.block}: {entry.tokens_in} -> {kept}")

        recorder = catome.Recorder(on_record=tell) if record or on_match else None
        with catome.apply(pipe, self.merging, record=recorder) as handle:
            yield handle

    def tokens(self, attached: catome.Handle) -> dict[str, list[tuple[int, float]]]:
        found: dict[str, list[tuple[int, float]]] = {}
        for entry in attached.recorder.records:
            kept = sum(entry.tokens_out) / len(entry.tokens_out)
            for module in self.merging.merge:
                found.setdefault(f"{entry.block}.{module}", []).append((entry.tokens_in, kept))
        return found

    def per_image(self, attached: catome.Handle, count: int) -> list[dict[str, Any]]:
        """`merged_share`: share of the source tokens merged, over all evaluations and blocks."""
        merged, sources = [0] * count, 0
        for entry in attached.recorder.records:
            for row, kept in enumerate(entry.tokens_out):
                merged[row % count] += entry.tokens_in - kept
            sources += entry.sources * len(entry.tokens_out) // count
        attached.recorder.clear()
        return [{"merged_share": m / sources if sources else 0.0} for m in merged]
