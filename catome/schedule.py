"""When a block matches anew; in between it re-uses its last match.

A step is the index of a U-Net evaluation within one generation, counted from 0. PLMS with 50 steps
makes 51 evaluations, Heun two a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from .checks import is_integer, require


@dataclass(frozen=True)
class EveryStep:
    """Match at every evaluation: nothing is re-used."""

    def due(self, step: int, block: str | None = None) -> bool:
        """Whether to match at evaluation `step`; all blocks alike."""
        return True


@dataclass(frozen=True)
class Interval:
    """Match at evaluations 0, every, 2 * every, ...

    Args:
        every: evaluations from one match to the next, 1 or more.
    """

    every: int

    def __post_init__(self):
        require(
            is_integer(self.every) and self.every >= 1, "interval", self.every, "an integer >= 1"
        )

    def due(self, step: int, block: str | None = None) -> bool:
        """Whether to match at evaluation `step`; all blocks alike."""
        return step % self.every == 0


@dataclass(frozen=True)
class Checkpoints:
    """Match at the listed evaluations, and wherever a block holds no match yet.

    Args:
        steps: integers >= 0 in increasing order. Entries beyond a generation's last evaluation are
            allowed and never reached.
        evaluations: of the generations that the list was made for, if that is known.
    """

    steps: Sequence[int]
    evaluations: int | None = None

    def __post_init__(self):
        allowed = "a list of integers >= 0 in increasing order"
        require(not isinstance(self.steps, (str, bytes)), "checkpoints", self.steps, allowed)
        try:
            steps = tuple(self.steps)
        except TypeError:
            steps = ()
        ordered = len(steps) > 0 and all(is_integer(s) and s >= 0 for s in steps)
        ordered = ordered and all(a < b for a, b in pairwise(steps))
        require(ordered, "checkpoints", self.steps, allowed)
        object.__setattr__(self, "steps", tuple(int(s) for s in steps))
        known = self.evaluations is None or (is_integer(self.evaluations) and self.evaluations >= 1)
        require(known, "evaluations", self.evaluations, "an integer >= 1 or None")

    def due(self, step: int, block: str | None = None) -> bool:
        """Whether to match at evaluation `step`; all blocks alike."""
        return step in self.steps

    def rescaled(self, evaluations: int) -> "Checkpoints":
        """The list stretched to generations of another length: the first and the last evaluation
        stay the first and the last, and entries that fall together become one.

        Raises:
            ValueError: it is not known what length the list was made for.
        """
        require(self.evaluations is not None, "evaluations", None, "known in order to rescale")
        last = max(1, self.evaluations - 1)
        steps = sorted({round(s * (evaluations - 1) / last) for s in self.steps})
        return Checkpoints(steps, evaluations)


@dataclass(frozen=True)
class ByBlock:
    """A schedule of its own for each block.

    Args:
        schedules: {block name within the U-Net: `EveryStep`, `Interval` or `Checkpoints`}.
        otherwise: of blocks without one.
    """

    schedules: Mapping[str, EveryStep | Interval | Checkpoints]
    otherwise: EveryStep | Interval | Checkpoints = field(default_factory=EveryStep)

    def __post_init__(self):
        single = (EveryStep, Interval, Checkpoints)
        fits = isinstance(self.schedules, Mapping) and len(self.schedules) > 0
        fits = fits and all(
            isinstance(name, str) and isinstance(schedule, single)
            for name, schedule in self.schedules.items()
        )
        require(fits, "schedules", self.schedules, "{block name: EveryStep, Interval, Checkpoints}")
        require(
            isinstance(self.otherwise, single), "otherwise", self.otherwise,
            "EveryStep, Interval or Checkpoints",
        )  # fmt: skip
        object.__setattr__(self, "schedules", dict(self.schedules))

    def due(self, step: int, block: str | None = None) -> bool:
        """Whether a block, or without a name any block, is to match at evaluation `step`."""
        if block is None:
            return any(s.due(step) for s in (*self.schedules.values(), self.otherwise))
        return self.schedules.get(block, self.otherwise).due(step)


# The lists published with CA-ToMe (arXiv 2501.00946).
PAPER = MappingProxyType(
    {
        "config1": Checkpoints((0, 1, 2, 3, 5, 10, 15, 25, 35)),
        "config2": Checkpoints((0, 10, 11, 12, 15, 20, 25, 30, 35, 45)),
        "config3": Checkpoints((0, 8, 11, 13, 20, 25, 30, 35, 45, 46, 47, 48, 49)),
        "config4": Checkpoints((0, 9, 13, 14, 15, 28, 29, 32, 36, 45)),
        "adaptive": Checkpoints((0, 1, 5, 7, 10, 12, 15, 35, 40, 45, 46, 47, 48, 49, 50, 51)),
        "every5": Checkpoints((0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)),
    }
)
