"""One block and one U-Net evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from diffusers import UNet2DConditionModel

import catome
from experiments.bench import variants
from experiments.bench.measure import take_turns
from experiments.bench.models import FINEST, build_unet, inputs, twin

ROWS = 2  # the two halves of guidance
Measured = tuple[dict[str, list[float]], dict[str, Any]]  # seconds by variant, and facts


@dataclass(frozen=True)
class Subject:
    """A U-Net with what it is given; `finest` is the downsampling of its finest attentions."""

    name: str
    unet: UNet2DConditionModel
    given: dict[str, Any]
    finest: int
    where: torch.device


def subject(
    architecture: str, pixels: int, dtype: torch.dtype, where: torch.device, rows: int = ROWS
) -> Subject:
    unet = built(architecture, dtype, where)
    given = inputs(architecture, pixels, rows, dtype, where)
    return Subject(f"{architecture} {pixels} px", unet, given, FINEST[architecture], where)


@lru_cache(maxsize=1)  # cells of one architecture follow each other
def built(architecture: str, dtype: torch.dtype, where: torch.device) -> UNet2DConditionModel:
    return build_unet(architecture, dtype, where)


def evaluation(of: Subject, ratio: float, turns: int) -> Measured:
    """An evaluation at a fixed ratio: ours against `tomesd`, nothing, and the limit."""
    models, share = at_ratio(of, ratio)
    seconds = time_models(models, of, turns, f"{of.name} ratio {ratio}")
    return seconds, {"merged share of sources": share}


def at_ratio(of: Subject, ratio: float) -> tuple[dict[str, UNet2DConditionModel], float]:
    select = catome.Ratio(ratio)
    kept, share = variants.kept_tokens(of.unet, of.given, select, of.finest)
    return {
        variants.UNPATCHED: of.unet,
        variants.TOMESD: variants.by_tomesd(of.unet, ratio, of.finest),
        **ours(of, select),
        variants.FREE: variants.at_the_limit(of.unet, kept),
    }, share


def ours(of: Subject, select: Any) -> dict[str, UNet2DConditionModel]:
    refresh = {variants.MATCH: catome.EveryStep(), variants.REUSE: variants.MATCHED_ONCE}
    return {n: variants.by_catome(of.unet, select, r, of.finest) for n, r in refresh.items()}


def by_ca_tome(of: Subject, threshold: float) -> dict[str, UNet2DConditionModel]:
    matching = {variants.CA_TOME_MATCH: True, variants.CA_TOME_REUSE: False}
    return {
        name: variants.by_ca_tome(of.unet, threshold, of.finest, matches)
        for name, matches in matching.items()
    }


def adaptive(of: Subject, turns: int) -> Measured:
    """An evaluation at a threshold that about half of the sources pass: ours against `ca_tome`."""
    threshold = variants.middle_threshold(of.unet, of.given, of.finest)
    select = catome.Threshold(threshold)
    kept, share = variants.kept_tokens(of.unet, of.given, select, of.finest)
    models = {
        variants.UNPATCHED: of.unet,
        **by_ca_tome(of, threshold),
        **ours(of, select),
        variants.FREE: variants.at_the_limit(of.unet, kept),
    }
    seconds = time_models(models, of, turns, f"{of.name} threshold {threshold:.3f}")
    return seconds, {"threshold": threshold, "merged share of sources": share}


def compiled(of: Subject, turns: int) -> Measured:
    """An evaluation at ratio 0.5 with blocks that torch.compile made faster, and without."""
    select = catome.Ratio(0.5)
    models = {variants.UNPATCHED: of.unet, variants.COMPILED: twin(of.unet), **ours(of, select)}
    again = ours(of, select)
    models[variants.COMPILED_MATCH] = again[variants.MATCH]
    models[variants.COMPILED_REUSE] = again[variants.REUSE]
    for name in (variants.COMPILED, variants.COMPILED_MATCH, variants.COMPILED_REUSE):
        models[name].compile_repeated_blocks(fullgraph=True)
    return time_models(models, of, turns, f"{of.name} compiled"), {}


def nothing(of: Subject, turns: int) -> Measured:
    """An evaluation with merging attached that merges nothing."""
    attached = variants.by_catome(of.unet, catome.Ratio(0.0), catome.EveryStep(), of.finest)
    models = {variants.UNPATCHED: of.unet, variants.NOTHING: attached}
    return time_models(models, of, turns, f"{of.name} merging nothing"), {}


def block(of: Subject, ratio: float, turns: int) -> Measured:
    """The first transformer of SD v1.5 at a fixed ratio: norm, projections and its one block."""
    models, share = at_ratio(of, ratio)
    side, dtype = of.given["sample"].shape[-1], of.unet.dtype
    x = torch.randn(ROWS, 320, side, side, device=of.where, dtype=dtype)
    calls: dict[str, Callable[[], Any]] = {}
    for name, model in models.items():
        if name == variants.TOMESD:
            model._tome_info["size"] = (side, side)
        if name == variants.REUSE:  # the first evaluation is over, blocks hold their match
            run(model, of.given)
            catome.get_handle(model).clock.tick(of.given["timestep"])
        text = of.given["encoder_hidden_states"]
        calls[name] = partial(model.down_blocks[0].attentions[0], x, encoder_hidden_states=text)
    seconds = take_turns(calls, turns, of.where, f"block of {side * side} tokens, ratio {ratio}")
    return seconds, {"merged share of sources": share}


def time_models(
    models: dict[str, UNet2DConditionModel], of: Subject, turns: int, label: str
) -> dict[str, list[float]]:
    calls = {name: partial(run, model, of.given) for name, model in models.items()}
    return take_turns(calls, turns, of.where, label)


@torch.no_grad()
def run(unet: UNet2DConditionModel, given: dict[str, Any]) -> torch.Tensor:
    # The peers read the sample from the positional arguments.
    return unet(given["sample"], **{k: v for k, v in given.items() if k != "sample"}).sample
