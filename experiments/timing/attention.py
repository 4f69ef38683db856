"""How much of a U-Net's time its finest self-attentions take: what merging there can save."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

import catome

DOWNSAMPLINGS = (1, 2, 4, 8)


def finest_attentions(unet: nn.Module) -> dict[str, nn.Module]:
    """{name: self-attention} of the transformer blocks with the most tokens.

    Raises:
        ValueError: no block has self-attention over a token grid.
    """
    for downsampling in DOWNSAMPLINGS:
        nothing = catome.TokenMerging(catome.Ratio(0.0), max_downsample=downsampling, merge=())
        try:
            with catome.apply(unet, nothing) as handle:
                names = [f"{block}.attn1" for block in handle.blocks]
        except ValueError:  # no block so fine
            continue
        return {name: unet.get_submodule(name) for name in names}
    raise ValueError(f"{type(unet).__name__}: no block has self-attention over a token grid")


@contextmanager
def marked(modules: list[nn.Module], watch: Any) -> Iterator[list[tuple[Any, Any]]]:
    """Moments at which modules begin and end, without the merging and un-merging around them.

    Args:
        modules: to watch; they must not be nested.
        watch: a `timing.Stopwatch`.
    """
    begins: list[Any] = []
    spans: list[tuple[Any, Any]] = []
    hooks = []
    for module in modules:
        # After hooks that shorten the input, before hooks that restore the output.
        hooks.append(module.register_forward_pre_hook(lambda *_: begins.append(watch.mark())))
        hooks.append(
            module.register_forward_hook(
                lambda *_: spans.append((begins.pop(), watch.mark())), prepend=True
            )
        )
    try:
        yield spans
    finally:
        for hook in hooks:
            hook.remove()
