"""What the handle and the hooks of one patched U-Net share."""

import warnings
import weakref

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from .clock import Clock
from .merge_map import MergeMap
from .method import TokenMerging
from .pipelines import rows_an_image
from .recorder import Recorder
from .schedule import EveryStep
from .selection import Threshold

Used = dict[str, tuple[MergeMap, ...] | None]  # the match each block used in one evaluation


class State:
    """The state of token merging on one U-Net, apart from the matches that its blocks hold.

    Attributes:
        method: the `TokenMerging` applied.
        clock: counts evaluations.
        recorder: the `Recorder`, or None.
        matched: whether any block matched anew in the latest evaluation.
        pipeline: reference to the pipeline, called to get it; gives None on a bare U-Net.
        copies: rows of one image in the latest evaluation, where images have their own counts.
        part: which of the evaluations of its own shape within its step the latest one is, from 0.
        used: what its blocks used.
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
        self.copies = 1
        self.part = 0
        self.used: Used = {}
        self._told_copies = copies
        self._images = 0
        self._shapes: dict[tuple[int, ...], int] = {}
        self._short_generations = 0
        self._recomputation = Recomputation()

    def begin_evaluation(self, sample: Tensor, timestep: Tensor | float) -> bool:
        """Count one evaluation of the U-Net; return whether all matches are to be forgotten.

        One that a backward pass makes again is not counted: blocks use what they used before.
        """
        if self._recomputation.running(sample):
            return False
        pipeline, last = self.pipeline(), self.clock.step
        schedulers = () if pipeline is None else schedulers_of(pipeline)
        first = self.clock.tick(timestep, *schedulers, shape=sample.shape)
        if not self.clock.same_step:
            self._shapes.clear()
        self.part = self._shapes.get(sample.shape, 0)
        self._shapes[sample.shape] = self.part + 1
        if first:
            self._warn_of_short_generations(last)
        if counts_by_image(self.method):
            self.copies = self._rows_of_an_image(pipeline, len(sample), first)
        self.matched = False
        self.used = {}
        self._recomputation.begin(sample, self.used)
        return first and self.method.cache == "fresh"

    def recomputed(self, x: Tensor) -> Used | None:
        """What blocks used in the evaluation that a backward pass makes again, given the tokens
        that a block is called with; None in an evaluation of its own."""
        if self._recomputation.running(x):
            return self._recomputation.used
        if torch.is_grad_enabled():
            self._recomputation.remember(x, self.used)
        return None

    def end_evaluation(self, sample: Tensor) -> None:
        """What the U-Net's hook does after each evaluation."""
        self._recomputation.watch(sample, self.used)

    def _rows_of_an_image(self, pipeline: object | None, batch: int, first: bool) -> int:
        """Rows of each image in this evaluation: told, or by the pipeline's class. Where fewer
        come in the course of a generation, they are of the same images."""
        told = self._told_copies
        if told is None and pipeline is None and self.pipeline.lost is None:
            return 1
        known = rows_an_image(pipeline, batch)
        copies = known if told is None else told
        if copies is None:
            gone = (
                f"the U-Net was copied without its {self.pipeline.lost}, or outlived it; apply to"
            )
            new = f"{type(pipeline).__name__} tells its guidance once it was called; call"
            why = f"{new} it" if pipeline is not None else f"{gone} the pipeline that is called"
            raise ValueError(f"copies=None: {why}, or pass copies")
        if first and known not in (None, copies):
            raise ValueError(
                f"copies={copies}: {type(pipeline).__name__} has {known} rows an image here; leave "
                f"copies out"
            )
        fits = batch % copies == 0
        fewer = not fits or batch // copies < self._images
        same_images = not first and (pipeline is not None or self.clock.same_step)
        if same_images and fewer and batch % self._images == 0:
            return batch // self._images
        if not fits:
            raise ValueError(f"copies={copies}: the U-Net was given {batch} rows, not a multiple")
        self._images = batch // copies
        return copies

    def _warn_of_short_generations(self, last: int) -> None:
        """A schedule re-uses nothing where every generation ends with its first step."""
        self._short_generations = self._short_generations + 1 if last == 0 else 0
        if self._short_generations == 3 and not isinstance(self.method.refresh, EveryStep):
            warnings.warn(
                f"{self.method.refresh}: nothing is re-used, as each of the last 3 generations had "
                f"a single step; does something replace the scheduler's timesteps in between?",
                stacklevel=2,
            )


class Recomputation:
    """Tells which evaluation a backward pass makes again (gradient checkpointing).

    It may begin with the U-Net, around it, or anywhere within it. The input tells where it is the
    checkpoint's own; else the gradient, which reached the evaluation's output just before.

    Attributes:
        used: what the blocks used in the evaluation that is made again.
    """

    def __init__(self):
        self.used: Used | None = None
        self._inputs: dict[int, tuple[StorageWeakRef, Used]] = {}

    def __reduce__(self) -> tuple:  # gradients of the original do not reach a copy
        return Recomputation, ()

    def begin(self, sample: Tensor, used: Used) -> None:
        """An evaluation of its own begins, with this input."""
        self.used = None
        for key in [key for key, (storage, _) in self._inputs.items() if storage.expired()]:
            del self._inputs[key]
        if not torch.is_inference_mode_enabled():
            self.remember(sample, used)

    def remember(self, given: Tensor, used: Used) -> None:
        """An input, for as long as anything holds it."""
        storage = StorageWeakRef(given.untyped_storage())
        self._inputs[storage.cdata] = (storage, used)

    def watch(self, output: Tensor, used: Used) -> None:
        """Learn when a gradient reaches this output of the U-Net."""
        if output.requires_grad and not _in_backward():

            def tell(gradient: Tensor) -> None:
                self.used = used

            output.register_hook(tell)

    def running(self, given: Tensor) -> bool:
        """Whether a backward pass makes an evaluation again, of which this is an input."""
        if not _in_backward():
            return False
        _, self.used = self._inputs.get(given.untyped_storage()._cdata, (None, self.used))
        if self.used is None:
            raise RuntimeError(
                "the U-Net runs within a backward pass, and cannot tell which evaluation is made "
                "again: checkpoint the U-Net itself, or with use_reentrant=False"
            )
        return True


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def counts_by_image(method: TokenMerging) -> bool:
    """Whether images have their own counts, so that their rows have to be known."""
    return isinstance(method.select, Threshold) and method.count == "image"


def schedulers_of(pipeline: object) -> list[object]:
    """A pipeline's schedulers: of generations, and of inversions where it has them."""
    return [v for k, v in vars(pipeline).items() if k.endswith("scheduler")]


class Reference:
    """A weak reference that follows deep copies and does not survive pickling by itself (`Link`).

    The U-Net must not own its pipeline. If both are copied, the copy refers to the copy; if the
    U-Net is copied alone, the copy refers to nothing.

    Attributes:
        lost: class of the object that was referred to and is gone, or None.
    """

    def __init__(self, target: object | None = None, was: str | None = None):
        self._target = None if target is None else weakref.ref(target)
        self._was = was if target is None else type(target).__name__

    def __call__(self) -> object | None:
        return None if self._target is None else self._target()

    @property
    def lost(self) -> str | None:
        return self._was if self() is None else None

    def __deepcopy__(self, memo: dict) -> "Reference":
        target = self()
        return Reference(None if target is None else memo.get(id(target)), self._was)

    def __reduce__(self) -> tuple:
        return Reference, (None, self._was)


class Link:
    """An attribute of a patched pipeline that tells the state which pipeline it came with, when
    the pipeline is copied or unpickled."""

    def __init__(self, state: State):
        self.state = state

    def __getstate__(self) -> dict:
        return {"state": self.state, "pipeline": self.state.pipeline()}

    def __setstate__(self, given: dict) -> None:
        self.state = given["state"]
        if given["pipeline"] is not None:
            self.state.pipeline = Reference(given["pipeline"])
