"""The limit of merging: tokens dropped and given back for nothing.

As many tokens as a row kept go through the modules that it shortens, the first ones, and all
tokens get one token's output, by a view without a copy. The images are worthless, the time is
what merging could reach if matching, merging and un-merging took none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from experiments.accelerators.base import Method


class FreeMerge(Method):
    """Drops tokens before modules of the U-Net.

    Args:
        kept: {module's name within the U-Net: tokens kept at each evaluation}.
    """

    revision = 1

    def __init__(self, kept: dict[str, list[int]]):
        super().__init__("free_merge")
        self.kept = kept

    @contextmanager
    def attach(self, pipe: Any, record: bool = False, on_match: Any = None) -> Iterator[None]:
        evaluation = Counter()
        hooks = [pipe.unet.register_forward_pre_hook(evaluation.advance)]
        for name, counts in self.kept.items():
            module, dropping = pipe.unet.get_submodule(name), Dropping(counts, evaluation)
            hooks += [
                module.register_forward_pre_hook(dropping.drop, with_kwargs=True),
                module.register_forward_hook(dropping.restore),
            ]
        try:
            yield None
        finally:
            for hook in hooks:
                hook.remove()


class Counter:
    """Which evaluation it is, from 0."""

    def __init__(self) -> None:
        self.value = -1

    def advance(self, *_: Any) -> None:
        self.value += 1


class Dropping:
    """The hooks of one module."""

    def __init__(self, counts: list[int], evaluation: Counter):
        self.counts, self.evaluation = counts, evaluation
        self.tokens = 0

    def drop(self, module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        x = args[0] if args else kwargs["hidden_states"]
        self.tokens = x.shape[1]
        short = x[:, : self.counts[self.evaluation.value]]
        return ((short, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": short})

    def restore(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor | None:
        if output.shape[1] == self.tokens:
            return None
        return output[:, :1].expand(-1, self.tokens, -1)
