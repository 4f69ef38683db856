"""Whole generations of the toy world: ours against `ca_tome` at the same matches, and the limit."""

from __future__ import annotations

from functools import partial
from typing import Any

import ca_tome.patch
import torch
from diffusers import StableDiffusionPipeline

import catome
from experiments.bench import variants
from experiments.bench.measure import take_turns
from experiments.bench.models import twin
from experiments.common.paths import ROOT
from experiments.timing.free_merge import FreeMerge
from experiments.toy.networks import LATENT_SIZE

PIPELINE = ROOT / "experiments" / "toy" / "weights" / "pipeline"
PROMPT = "a large red ring left of a small blue cross on a beige background"
STEPS, EVERY, GUIDANCE = 20, 5, 2.0
CA_TOME, OURS = "ca_tome", "catome"


class OfficialSteps:
    """Tells ca_tome's blocks the evaluation, from 1 in each generation, as its pipeline does."""

    def __init__(self, unet: torch.nn.Module):
        self.unet, self.step = unet, 0
        unet.register_forward_pre_hook(self.advance)

    def advance(self, *_: Any) -> None:
        self.step += 1
        variants.tell_step(self.unet, self.step)


def toy(where: torch.device) -> StableDiffusionPipeline:
    pipe = StableDiffusionPipeline.from_pretrained(PIPELINE, dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(where)


def sharing(pipe: StableDiffusionPipeline) -> StableDiffusionPipeline:
    """A pipeline of the same weights whose U-Net can be patched by itself."""
    parts = {**pipe.components, "unet": twin(pipe.unet)}
    own = StableDiffusionPipeline(**parts, requires_safety_checker=False)
    own.set_progress_bar_config(disable=True)
    return own


@torch.no_grad()
def paint(pipe: StableDiffusionPipeline, counter: OfficialSteps | None = None) -> Any:
    if counter is not None:
        counter.step = 0
    shape = (1, pipe.unet.config.in_channels, LATENT_SIZE, LATENT_SIZE)
    latents = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(pipe.device)
    options = {"num_inference_steps": STEPS, "guidance_scale": GUIDANCE, "latents": latents}
    return pipe(PROMPT, **options).images[0]


def paint_at_the_limit(pipe: StableDiffusionPipeline, kept: dict[str, list[int]]) -> Any:
    with FreeMerge(kept).attach(pipe):
        return paint(pipe)


def generations(where: torch.device, turns: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of 20 PLMS steps where about half of the sources merge, matched every 5."""
    pipe = toy(where)
    recorder = catome.Recorder(similarities=True)
    watching = catome.TokenMerging(catome.Threshold(0.99), merge=())
    with catome.apply(pipe, watching, record=recorder):
        paint(pipe)
    similarities = torch.cat([r.similarities.flatten() for r in recorder.records])
    threshold = similarities.median().item()

    theirs, ours, free = sharing(pipe), sharing(pipe), sharing(pipe)
    evaluations = STEPS + 1
    matched = list(range(1, evaluations + 1, EVERY))
    ca_tome.patch.apply_patch(theirs, compute_on=matched, r=threshold)
    method = catome.TokenMerging(catome.Threshold(threshold), catome.Interval(EVERY))
    handle = catome.apply(ours, method, record=True)
    paint(ours)
    share = handle.recorder.share_merged()
    kept = variants.kept_by_evaluation(handle.recorder)
    catome.apply(ours, method)
    calls = {
        variants.UNPATCHED: partial(paint, pipe),
        CA_TOME: partial(paint, theirs, OfficialSteps(theirs.unet)),
        OURS: partial(paint, ours),
        variants.FREE: partial(paint_at_the_limit, free, kept),
    }
    facts = {"threshold": threshold, "merged share of sources": share}
    return take_turns(calls, turns, where, "toy, 20 PLMS steps"), facts
