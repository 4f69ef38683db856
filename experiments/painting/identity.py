"""All that determines an image beside its prompt and seed."""

from __future__ import annotations

from typing import Any

from diffusers import (
    SchedulerMixin,
)
from omegaconf import DictConfig

from experiments.common.files import digest
from experiments.common.paths import locate
from experiments.models.identity import model_identity


def painter_identity(cfg: DictConfig, scheduler: SchedulerMixin, method) -> dict[str, Any]:
    """All that determines an image beside its prompt and seed; JSON."""
    options = cfg.generation
    facts = {k: v for k, v in scheduler.config.items() if not k.startswith("_")}
    return {
        "model": model_identity(locate(str(cfg.model.path)), cfg.model.revision),
        "scheduler": {"class": type(scheduler).__name__, "digest": digest(facts)},
        "steps": options.steps,
        "guidance_scale": float(options.guidance_scale),
        "negative_prompt": options.negative_prompt,
        "height": options.height,
        "width": options.width,
        "dtype": cfg.dtype,
        "attention": cfg.attention,
        "method": method.identity(),
    }
