"""What re-using the match of one evaluation at a later one costs, from the baseline's own trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from tqdm import tqdm

import catome
from catome.matching import pattern_generator
from experiments.analysis.trace import merging_of
from experiments.models import pipelines
from experiments.painting import pipeline_call
from experiments.painting.store import Prompt


class Tap:
    """The tokens that a transformer block and its self-attention were given, in order."""

    def __init__(self, block: nn.Module):
        self.attention = block.attn1
        self.listening = True
        self.block_inputs: list[Tensor] = []
        self.attention_inputs: list[Tensor] = []
        self.hooks = [
            block.register_forward_pre_hook(self.enter, with_kwargs=True),
            block.attn1.register_forward_pre_hook(self.attend, with_kwargs=True),
        ]

    def enter(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self.listening:
            self.block_inputs.append(args[0] if args else kwargs["hidden_states"])

    def attend(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self.listening:
            self.attention_inputs.append(args[0] if args else kwargs["hidden_states"])

    def clear(self) -> None:
        self.block_inputs.clear()
        self.attention_inputs.clear()


@contextmanager
def tapped(pipe, merging: catome.TokenMerging) -> Iterator[tuple[dict[str, Tap], catome.Handle]]:
    """Taps of the blocks in which `merging` would merge, by name, with its observing handle."""
    with catome.apply(pipe, merging, record=True) as handle:
        taps = {name: Tap(pipe.unet.get_submodule(name)) for name in handle.blocks}
        try:
            yield taps, handle
        finally:
            for tap in taps.values():
                for hook in tap.hooks:
                    hook.remove()


def reuse_costs(cfg: DictConfig, prompts: list[Prompt]) -> dict[str, np.ndarray]:
    """{block: (S, S) cost of using the match of evaluation s at evaluation t >= s}.

    The cost is the relative error of the self-attention's output, ||merged - whole|| / ||whole||,
    at the tokens that the baseline has there, mean over images; NaN for t < s. Errors do not add
    up along the way: each is measured on the baseline's trajectory.
    """
    merging = merging_of(cfg)
    sums: dict[str, np.ndarray] = {}
    pipe = pipelines.load(cfg)
    with tapped(pipe, merging) as (taps, handle), torch.no_grad():
        for prompt in tqdm(prompts, desc="costs of re-use", unit="image"):
            pipeline_call.generate(pipe, cfg, [prompt])
            grids = {record.block: record.grid for record in handle.records}
            handle.recorder.clear()
            for name, tap in taps.items():
                found = block_costs(tap, merging, name, grids[name])
                sums[name] = sums.get(name, 0) + found
                tap.clear()
    return {name: total / len(prompts) for name, total in sums.items()}


def block_costs(
    tap: Tap, merging: catome.TokenMerging, name: str, grid: tuple[int, int]
) -> np.ndarray:
    """(S, S) costs of one block over one image's trace; all rows belong to that image."""
    steps = len(tap.block_inputs)
    maps = [match_of(merging, tap.block_inputs[s], name, s, grid) for s in range(steps)]
    tap.listening = False  # what follows is no generation
    costs = np.full((steps, steps), np.nan)
    for t, tokens in enumerate(tap.attention_inputs):
        whole = tap.attention(tokens)
        norm = torch.linalg.vector_norm(whole.float())
        for s in range(t + 1):
            merged = maps[s].unmerge(tap.attention(maps[s].merge(tokens)))
            costs[s, t] = (torch.linalg.vector_norm((merged - whole).float()) / norm).item()
    tap.listening = True
    return costs


def match_of(
    merging: catome.TokenMerging, tokens: Tensor, name: str, step: int, grid: tuple[int, int]
) -> catome.MergeMap:
    """The match that the method makes of these tokens at this evaluation."""
    generator = None
    if merging.destinations == "random":
        generator = pattern_generator(merging.seed, step, name)
    destinations = catome.destination_tokens(*grid, merging.stride, generator)
    return catome.match(tokens, destinations, merging.select)[0]
