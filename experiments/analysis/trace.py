"""The baseline's generations, watched: matches are made at every evaluation and merge nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omegaconf import DictConfig
from tqdm import tqdm

import catome
from experiments.accelerators.build import build_method
from experiments.accelerators.token_merging import TokenMergingMethod
from experiments.common.errors import bad
from experiments.models import pipelines
from experiments.painting import pipeline_call
from experiments.painting.store import Prompt


def merging_of(cfg: DictConfig) -> catome.TokenMerging:
    """The token merging of `cfg.method`, made to match everywhere and merge nowhere."""
    method = build_method(cfg)
    if not isinstance(method, TokenMergingMethod):
        raise bad("method", cfg.method.name, "must merge tokens; there is nothing to observe")
    if method.merging.select.merges_nothing:
        raise bad("method", cfg.method.name, "merges nothing as set; there is nothing to observe")
    return replace(
        method.merging, merge=(), refresh=catome.EveryStep(), cache="fresh", count="image"
    )


def watched(
    cfg: DictConfig,
    prompts: list[Prompt],
    merging: catome.TokenMerging,
    recorder: catome.Recorder,
    label: str,
) -> Iterator[list[catome.Record]]:
    """The records of one batch after the other; the images themselves are dropped."""
    pipe, batch = pipelines.load(cfg), cfg.generation.batch_size
    with (
        catome.apply(pipe, merging, record=recorder),
        tqdm(total=len(prompts), desc=label, unit="image") as progress,
    ):
        for start in range(0, len(prompts), batch):
            part = prompts[start : start + batch]
            pipeline_call.generate(pipe, cfg, part)
            yield recorder.records
            recorder.clear()
            progress.update(len(part))
