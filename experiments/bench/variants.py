"""The ways to run one U-Net evaluation: as it is, by the peers, by this library, at the limit.

Each returns a U-Net that shares the weights of the one it is given. "matching" evaluations match
anew, "re-using" ones use the match of an evaluation before.
"""

from __future__ import annotations

from typing import Any

import ca_tome.patch
import tomesd
import torch
from diffusers import UNet2DConditionModel
from torch import nn

import catome
from experiments.bench.models import twin
from experiments.timing.free_merge import Counter, Dropping

UNPATCHED, FREE = "unpatched", "free merge"
TOMESD, CA_TOME_MATCH, CA_TOME_REUSE = "tomesd", "ca_tome matching", "ca_tome re-using"
COMPILED, COMPILED_MATCH = "unpatched compiled", "catome matching compiled"
COMPILED_REUSE = "catome re-using compiled"
MATCH, REUSE, NOTHING = "catome matching", "catome re-using", "catome merging nothing"
MATCHED_ONCE = catome.Checkpoints([0])


def by_catome(
    unet: UNet2DConditionModel,
    select: Any,
    refresh: Any,
    downsample: int,
    **options: Any,
) -> UNet2DConditionModel:
    """`copies=2` as under guidance."""
    own = twin(unet)
    method = catome.TokenMerging(select, refresh, max_downsample=downsample, **options)
    catome.apply(own, method, copies=2)
    return own


def by_tomesd(unet: UNet2DConditionModel, ratio: float, downsample: int) -> UNet2DConditionModel:
    return tomesd.apply_patch(twin(unet), ratio=ratio, max_downsample=downsample)


def by_ca_tome(
    unet: UNet2DConditionModel, threshold: float, downsample: int, matching: bool
) -> UNet2DConditionModel:
    """Its pipeline tells blocks the step; here it is always 1, which matches or does not."""
    own = twin(unet)
    ca_tome.patch.apply_patch(
        own, compute_on=[1] if matching else [0], r=threshold, max_downsample=downsample
    )
    tell_step(own, 1)
    return own


def tell_step(unet: nn.Module, step: int) -> None:
    for module in unet.modules():
        if hasattr(module, "_cache_info"):
            module.inference_step = step


def at_the_limit(unet: UNet2DConditionModel, kept: dict[str, int]) -> UNet2DConditionModel:
    """Tokens dropped before self-attention and copied back for nothing."""
    own, always = twin(unet), Counter()
    always.advance()
    for name, count in kept.items():
        dropping = Dropping([count], always)
        module = own.get_submodule(name)
        module.register_forward_pre_hook(dropping.drop, with_kwargs=True)
        module.register_forward_hook(dropping.restore)
    return own


@torch.no_grad()
def kept_tokens(
    unet: UNet2DConditionModel, given: dict[str, Any], select: Any, downsample: int
) -> tuple[dict[str, int], float]:
    """{module: tokens kept, mean over the batch}, and the share of the sources that merges."""
    own, recorder = twin(unet), catome.Recorder()
    method = catome.TokenMerging(select, max_downsample=downsample)
    with catome.apply(own, method, copies=2, record=recorder):
        own(**given)
    kept = {name: counts[0] for name, counts in kept_by_evaluation(recorder).items()}
    return kept, recorder.share_merged()


def kept_by_evaluation(recorder: catome.Recorder) -> dict[str, list[int]]:
    """{module: tokens kept at each evaluation, mean over the batch}."""
    kept: dict[str, list[int]] = {}
    for record in recorder.records:
        mean = sum(record.tokens_out) / len(record.tokens_out)
        kept.setdefault(f"{record.block}.attn1", []).append(round(mean))
    return kept


@torch.no_grad()
def middle_threshold(unet: UNet2DConditionModel, given: dict[str, Any], downsample: int) -> float:
    """A threshold that about half of the sources pass."""
    own, recorder = twin(unet), catome.Recorder(similarities=True)
    watched = catome.TokenMerging(catome.Threshold(0.99), max_downsample=downsample, merge=())
    with catome.apply(own, watched, copies=2, record=recorder):
        own(**given)
    return torch.cat([r.similarities.flatten() for r in recorder.records]).median().item()
