"""`TokenMerging`: ToMe, adaptive-only, cache-only and CA-ToMe as selection x schedule."""

from dataclasses import dataclass, field, fields

from .checks import is_integer, require
from .schedule import ByBlock, Checkpoints, EveryStep, Interval
from .selection import Ratio, Threshold

MERGEABLE = ("attn1", "attn2", "ff")


@dataclass(frozen=True)
class TokenMerging:
    """What to merge, how much, where and when to match.

    | method                       | select      | refresh                  |
    |------------------------------|-------------|--------------------------|
    | ToMe (arXiv 2303.17604)      | `Ratio`     | `EveryStep`              |
    | adaptive only                | `Threshold` | `EveryStep`              |
    | cache only                   | `Ratio`     | `Interval`/`Checkpoints` |
    | CA-ToMe (arXiv 2501.00946)   | `Threshold` | `Interval`/`Checkpoints` |

    Args:
        select: `Ratio(r)` or `Threshold(t)`.
        refresh: `EveryStep()`, `Interval(k)`, `Checkpoints([...])` or `ByBlock({...})`.
        stride: side of the cells of the token grid; one token a cell is a destination.
        max_downsample: merge in blocks whose grid is at most so many times smaller than the
            latent. 1 is the latent's own resolution.
        destinations: "random", one token of each cell, drawn from (seed, step, block) and the
            same for all images; or "corner", the top-left one.
        merge: modules that work on the shortened sequence: "attn1" (self-attention), "attn2"
            (cross-attention), "ff" (feed-forward). With none, blocks match and a recorder sees
            what would merge, but all tokens stay: the baseline, observed.
        seed: of the random destinations. The global generators are never used.
        count: who shares an adaptive count. "image": the rows of one image (its guided and
            unguided halves); images of a batch do not influence each other. "batch": all rows, as
            in the official code.
        cache: "fresh" forgets all matches when a generation begins. "official" is the official
            code's reading of a checkpoint list: entry s means evaluation s - 1, and the matches are
            carried into the next generation. Needs `Checkpoints`.
        pairing: how sources find their destinations. "similarity" is the method; "random" and
            "space" (the nearest on the token grid) are controls that do not look at the tokens
            and compare nothing. They need a `Ratio`.

        window: side in tokens of the tiles within which sources look for destinations, a multiple
            of `stride` that divides the token grids larger than it; None compares all. Fewer
            comparisons, and not the published method: pairs across the borders of tiles are missed.

    Raises:
        ValueError: one line with the key, its value and what is allowed.
    """

    select: Ratio | Threshold
    refresh: EveryStep | Interval | Checkpoints | ByBlock = field(default_factory=EveryStep)
    stride: int = 2
    max_downsample: int = 1
    destinations: str = "random"
    merge: tuple[str, ...] = ("attn1",)
    seed: int = 0
    count: str = "image"
    cache: str = "fresh"
    pairing: str = "similarity"
    window: int | None = None

    def __post_init__(self):
        require(
            isinstance(self.select, (Ratio, Threshold)), "select", self.select, "Ratio or Threshold"
        )
        require(
            isinstance(self.refresh, (EveryStep, Interval, Checkpoints, ByBlock)),
            "refresh",
            self.refresh,
            "EveryStep, Interval, Checkpoints or ByBlock",
        )
        for key, least in (("stride", 2), ("max_downsample", 1), ("seed", 0)):
            value = getattr(self, key)
            require(is_integer(value) and value >= least, key, value, f"an integer >= {least}")
        for key, choices in (
            ("destinations", ("random", "corner")),
            ("count", ("image", "batch")),
            ("cache", ("fresh", "official")),
            ("pairing", ("similarity", "random", "space")),
        ):
            value = getattr(self, key)
            require(value in choices, key, value, " or ".join(map(repr, choices)))
        names, is_list = tuple(self.merge), not isinstance(self.merge, str)
        known = len(set(names)) == len(names) and set(names) <= set(MERGEABLE)
        require(is_list and known, "merge", self.merge, f"some of {MERGEABLE}, or none")
        object.__setattr__(self, "merge", names)
        require(
            self.cache == "fresh" or isinstance(self.refresh, Checkpoints),
            "cache",
            self.cache,
            f"'fresh' with {type(self.refresh).__name__} ('official' needs Checkpoints)",
        )
        require(
            self.pairing == "similarity" or isinstance(self.select, Ratio),
            "pairing",
            self.pairing,
            "'similarity' with Threshold (the others need Ratio)",
        )

        window = self.window
        require(
            window is None or (is_integer(window) and window > 0 and window % self.stride == 0),
            "window",
            window,
            f"a multiple of stride={self.stride}, or None",
        )
        require(
            window is None or self.pairing == "similarity",
            "window",
            window,
            f"None with pairing={self.pairing!r}",
        )

    def matches_at(self, step: int, block: str | None = None) -> bool:
        """Whether blocks that hold a match still match anew at evaluation `step` (from 0).

        Args:
            block: a block's name within the U-Net; None asks for any of them.
        """
        return self.refresh.due(step + 1 if self.cache == "official" else step, block)

    def unreached(self, evaluations: int) -> tuple[int, ...]:
        """List entries beyond the last of `evaluations` U-Net evaluations, as written."""
        first_unreached = evaluations + (self.cache == "official")
        steps = {s for c in self.checkpoints() for s in c.steps if s >= first_unreached}
        return tuple(sorted(steps))

    def checkpoints(self) -> tuple[Checkpoints, ...]:
        """All lists in the schedule."""
        single = self.refresh
        parts = single.schedules.values() if isinstance(single, ByBlock) else (single,)
        return tuple(part for part in parts if isinstance(part, Checkpoints))

    def describe(self) -> dict:
        """All settings as plain JSON types, stable across runs: usable as an identity."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        settings["select"] = _described(self.select)
        settings["refresh"] = _described(self.refresh)
        settings["merge"] = list(self.merge)
        return settings


def _described(part) -> dict:
    """A selection or schedule as JSON types; what a list was made for changes no image."""
    if isinstance(part, ByBlock):
        schedules = {name: _described(s) for name, s in sorted(part.schedules.items())}
        values = {"schedules": schedules, "otherwise": _described(part.otherwise)}
    else:
        values = {f.name: getattr(part, f.name) for f in fields(part) if f.name != "evaluations"}
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    return {"kind": type(part).__name__, **values}
