"""Schedulers by the names of the configuration."""

from __future__ import annotations

from typing import Any

import diffusers
from diffusers import SchedulerMixin
from omegaconf import DictConfig

from experiments.common.errors import bad, first_line
from experiments.common.paths import locate

SCHEDULER_CLASSES: dict[str, tuple[type[SchedulerMixin], dict[str, Any]]] = {
    "plms": (diffusers.PNDMScheduler, {"skip_prk_steps": True}),
    "ddim": (diffusers.DDIMScheduler, {}),
    "dpm++2m": (diffusers.DPMSolverMultistepScheduler, {"algorithm_type": "dpmsolver++"}),
    "euler": (diffusers.EulerDiscreteScheduler, {}),
}


def scheduler(cfg: DictConfig) -> SchedulerMixin:
    """The scheduler that `load` gives the pipeline, without loading a model.

    Raises:
        ConfigError: it is neither in a folder nor can it be downloaded.
    """
    path, options = locate(str(cfg.model.path)), {"subfolder": "scheduler"}
    try:
        found = diffusers.PNDMScheduler.load_config(path, revision=cfg.model.revision, **options)
        own = getattr(diffusers, found["_class_name"])
        base = own.from_pretrained(path, revision=cfg.model.revision, **options)
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise bad("model.path", path, f"its scheduler cannot be loaded: {reason}") from error
    kind, changed = SCHEDULER_CLASSES[cfg.generation.scheduler]
    return kind.from_config(dict(base.config), **changed)
