"""What the runner needs of an accelerator. A user's own is a subclass, named in a YAML file.

# my_configs/method/mine.yaml, found with  hydra.searchpath=[file://my_configs]
_target_: my_package.Mine
name: mine
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any


class Method:
    """An accelerator of one pipeline. The class itself changes nothing: it is the baseline.

    Attributes:
        name: as written in tables and file names.
        revision: raised whenever its code makes other images of the same settings; images of an
            earlier revision are then painted anew. Subclasses must set their own.
        package: distribution that does the work, if it is somebody else's; its version counts too.
        order_dependent: True if an image depends on the images painted before or beside it. Such
            rows are painted in manifest order by one worker and repainted whole.
    """

    revision: int
    package: str | None = None
    order_dependent = False

    def __init__(self, name: str):
        if "revision" not in vars(type(self)):
            kind = type(self).__name__
            raise ValueError(
                f"_target_={kind}: the class must set revision = 1, a number to be raised when its "
                "images change"
            )
        self.name = name

    def settings(self) -> dict[str, Any]:
        """All that determines the images, as JSON types."""
        return {"name": self.name}

    def columns(self) -> dict[str, Any]:
        """What the table says of the method."""
        return {
            "method": self.name,
            "threshold": None,
            "ratio": None,
            "caching": "—",
            "interval": None,
        }

    def identity(self) -> dict[str, Any]:
        """What tells images of this method from those of another, as JSON types."""
        package = {} if self.package is None else {"package": [self.package, version(self.package)]}
        return {**self.settings(), "revision": self.revision, **package}

    def prepare(self, evaluations: int) -> None:
        """Told how many U-Net evaluations a generation has, before anything else is asked."""

    def check_latent(self, height: int, width: int) -> None:
        """Told the size of the latent before anything is painted.

        Raises:
            ValueError: a setting does not suit it; one line that begins with `key=value`.
        """

    def warnings(self, evaluations: int) -> list[str]:
        """Settings that cannot take effect in a generation of so many U-Net evaluations."""
        return []

    def matches_at(self, evaluation: int) -> bool | None:
        """Whether an evaluation does the work that the others re-use; None if all are alike."""
        return None

    @contextmanager
    def attach(
        self, pipe, record: bool = False, on_match: Callable[[str], None] | None = None
    ) -> Iterator[Any]:
        """Accelerate `pipe` within the context; yields what `per_image` is given.

        Args:
            record: keep what `per_image` needs (off where time is measured).
            on_match: told a line for each match, for debugging.
        """
        yield None

    def tokens(self, attached: Any) -> dict[str, list[tuple[int, float]]]:
        """Of a recorded generation: {name of a module of the U-Net: (tokens it would be given,
        tokens it was given, mean over the batch) at each evaluation}; {} where none are dropped."""
        return {}

    def per_image(self, attached: Any, count: int) -> list[dict[str, Any]]:
        """After a recorded generation of `count` images: facts to keep with each."""
        return [{} for _ in range(count)]
