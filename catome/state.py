"""What the handle and the hooks of one patched U-Net share."""

import weakref

from torch import Tensor

from .clock import Clock
from .method import TokenMerging
from .recorder import Recorder


class State:
    """The state of token merging on one U-Net, apart from the matches that its blocks hold.

    Attributes:
        method: the `TokenMerging` applied.
        clock: counts evaluations.
        recorder: the `Recorder`, or None.
        matched: whether any block matched anew in the latest evaluation.
        pipeline: reference to the pipeline, called to get it; gives None on a bare U-Net.
    """

    def __init__(
        self,
        pipeline: object | None,
        method: TokenMerging,
        copies: int | None,
        recorder: Recorder | None,
    ):
        self.method = method
        self.clock = Clock()
        self.recorder = recorder
        self.matched = False
        self.pipeline = Reference(pipeline)
        self._told_copies = copies

    def images(self, rows: int) -> int:
        """How many images the rows of a batch belong to."""
        copies = self._told_copies
        if copies is None:
            # Pipelines know whether they guide once they were called, and may stop midway.
            guides = getattr(self.pipeline(), "do_classifier_free_guidance", False)
            copies = 2 if guides and rows % 2 == 0 else 1
        if rows % copies:
            raise ValueError(f"copies={copies}: the U-Net was given {rows} rows, not a multiple")
        return rows // copies

    def begin_evaluation(self, timestep: Tensor | float) -> bool:
        """Count one evaluation of the U-Net; return whether all matches are to be forgotten."""
        self.matched = False
        scheduler = getattr(self.pipeline(), "scheduler", None)
        return self.clock.tick(timestep, scheduler) and self.method.cache == "fresh"


class Reference:
    """A weak reference that follows deep copies and does not survive pickling.

    The U-Net must not own its pipeline. If both are copied, the copy refers to the copy; if the
    U-Net is copied alone, the copy refers to nothing and is a bare U-Net.
    """

    def __init__(self, target: object | None = None):
        self._target = None if target is None else weakref.ref(target)

    def __call__(self) -> object | None:
        return None if self._target is None else self._target()

    def __deepcopy__(self, memo: dict) -> "Reference":
        target = self()
        return Reference(None if target is None else memo.get(id(target)))

    def __reduce__(self) -> tuple:
        return Reference, ()
