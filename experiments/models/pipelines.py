"""Diffusers pipelines as a configuration describes them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from diffusers import StableDiffusionPipeline
from omegaconf import DictConfig

from experiments.common.errors import bad, first_line
from experiments.common.paths import locate
from experiments.models.device import device
from experiments.models.schedulers import SCHEDULER_CLASSES


def load(cfg: DictConfig) -> StableDiffusionPipeline:
    """The pipeline of `cfg.model` with the scheduler, dtype and device of `cfg`.

    A process keeps the last model it loaded. The safety checker is off: it would replace images
    by black ones.
    """
    model = cfg.model
    pipe = _load(locate(str(model.path)), model.revision, cfg.dtype, str(device(cfg)))
    kind, options = SCHEDULER_CLASSES[cfg.generation.scheduler]
    pipe.scheduler = kind.from_config(_base_scheduler(pipe), **options)
    return pipe


@lru_cache(maxsize=1)
def _load(path: str, revision: str | None, dtype: str, where: str) -> StableDiffusionPipeline:
    folder = Path(path)
    if is_local(path) and not (folder / "model_index.json").is_file():
        raise bad("model.path", path, "must be a Diffusers pipeline folder with model_index.json")
    if folder.is_dir():
        kind = json.loads((folder / "model_index.json").read_text()).get("_class_name")
        if kind != "StableDiffusionPipeline":
            raise bad("model.path", path, f"holds a {kind}; must hold a StableDiffusionPipeline")
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    try:
        pipe = StableDiffusionPipeline.from_pretrained(
            path,
            revision=revision,
            dtype=getattr(torch, dtype),
            safety_checker=None,
            requires_safety_checker=False,
        )
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise bad("model.path", path, f"cannot be loaded: {reason}") from error
    pipe.set_progress_bar_config(disable=True)
    pipe.catome_scheduler_config = dict(pipe.scheduler.config)
    return pipe.to(where)


def _base_scheduler(pipe: StableDiffusionPipeline) -> dict[str, Any]:
    """The scheduler configuration the model came with, whatever has replaced it since."""
    return pipe.catome_scheduler_config


def is_local(path: str) -> bool:
    """Whether a model path means a folder: it exists, or cannot be a hub's `owner/name`."""
    return Path(path).exists() or path.startswith((".", "/", "~")) or path.count("/") != 1
