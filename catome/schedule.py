"""When a block matches anew; in between it re-uses its last match.

A step is the index of a U-Net evaluation within one generation, counted from 0. PLMS with 50 steps
makes 51 evaluations, Heun two a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from .checks import is_integer, require


@dataclass(frozen=True)
class EveryStep:
    """Match at every evaluation: nothing is re-used."""

    def due(self, step: int) -> bool:
        """Whether to match at evaluation `step`."""
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

    def due(self, step: int) -> bool:
        """Whether to match at evaluation `step`."""
        return step % self.every == 0


@dataclass(frozen=True)
class Checkpoints:
    """Match at the listed evaluations, and wherever a block holds no match yet.

    Args:
        steps: integers >= 0 in increasing order. Entries beyond a generation's last evaluation are
            allowed and never reached.
    """

    steps: Sequence[int]

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

    def due(self, step: int) -> bool:
        """Whether to match at evaluation `step`."""
        return step in self.steps


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
