"""Work on all rows in turn, so that what slows the machine down falls on all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

from experiments.accelerators.base import Method
from experiments.common.errors import kind_and_line
from experiments.models import pipelines
from experiments.painting.store import Prompt


@dataclass
class TimedRow:
    """What the time stage needs of a row."""

    name: str
    cfg: DictConfig
    method: Method


@dataclass
class Turns:
    """Work on rows in turn; a row that fails is reported in `errors` and takes no further part."""

    progress: tqdm
    errors: dict[str, str] = field(default_factory=dict)

    def take(
        self,
        rows: list[TimedRow],
        work: Callable[..., Any],
        prompts: dict[str, list[Prompt]],
        *more: Any,
    ) -> dict[str, Any]:
        """{row: `work(pipe, row, its prompts, *more)`} of the rows that did not fail."""
        done = {}
        for row in rows:
            self.progress.set_postfix_str(f"{work.__name__} {row.name}")
            self.progress.update(1)
            if row.name in self.errors:
                continue
            try:
                done[row.name] = work(pipelines.load(row.cfg), row, prompts[row.name], *more)
            except (RuntimeError, ValueError) as error:
                self.errors[row.name] = kind_and_line(error)
        return done
