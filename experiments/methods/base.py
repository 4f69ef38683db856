"""What the runner needs of an accelerator. A user's own is a subclass, named in a YAML file.

# my_configs/method/mine.yaml, found with  hydra.searchpath=[file://my_configs]
_target_: my_package.Mine
name: mine
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Method:
    """An accelerator of one pipeline. The class itself changes nothing: it is the baseline.

    Attributes:
        name: as written in tables and file names.
        order_dependent: True if an image depends on the images painted before or beside it. Such
            rows are painted in manifest order by one worker and repainted whole.
    """

    order_dependent = False

    def __init__(self, name: str):
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

    def sources(self) -> list[Path]:
        """Files whose code determines the images; a change of code starts a new painter."""
        return [Path(inspect.getfile(type(self)))]

    def identity(self) -> dict[str, Any]:
        return {**self.settings(), "source": code_digest(self.sources())}

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


def code_digest(files: list[Path]) -> str:
    """16 hex digits over the files' code, comments and docstrings left out."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.name):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and _is_docstring(body[0]):
                node.body = body[1:]
        total.update(f"{file.name}\n{ast.dump(tree)}\n".encode())
    return total.hexdigest()[:16]


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
