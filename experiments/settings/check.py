"""The composed configuration, checked where it enters; no torch, no model."""

from __future__ import annotations

from omegaconf import DictConfig

from experiments.common.errors import bad, plain
from experiments.common.requirements import (
    require_choice,
    require_device_name,
    require_integer,
    require_list,
    require_number,
)
from experiments.settings.choices import (
    ATTENTION,
    DTYPES,
    LARGEST,
    SCHEDULERS,
    SPLITS,
    STAGES,
)


def check(cfg: DictConfig) -> None:
    """Raise ConfigError for the first setting that cannot be on any machine."""
    require_integer("seed", cfg.seed, 0)
    require_integer("replicates", cfg.replicates, 1)
    require_choice("dtype", cfg.dtype, DTYPES)
    require_choice("attention", cfg.attention, ATTENTION)
    require_choice("plan", plain(cfg.plan), ("null", "power", "cost"))
    require_choice("debug", plain(cfg.debug), ("null", "row"))
    if not cfg.stages:
        raise bad("stages", cfg.stages, f"must be a list of {', '.join(STAGES)}")
    require_list("stages", cfg.stages, STAGES)
    generation = cfg.generation
    require_choice("generation.scheduler", generation.scheduler, SCHEDULERS)
    require_number("generation.guidance_scale", generation.guidance_scale, 0)
    for key in ("steps", "height", "width", "batch_size", "shards"):
        require_integer(f"generation.{key}", generation[key], 1)
    for key in ("height", "width"):
        if generation[key] % 8:
            raise bad(f"generation.{key}", generation[key], "must be a multiple of 8")
    require_integer("timing.repeats", cfg.timing.repeats, 1)
    require_integer("timing.warmup", cfg.timing.warmup, 0)
    if cfg.timing.batch_size != LARGEST:
        require_integer("timing.batch_size", cfg.timing.batch_size, 1)
    require_integer("prompts.limit", cfg.prompts.limit, 1, optional=True)
    require_choice("prompts.split", plain(cfg.prompts.split), ("null", *SPLITS))
    require_number("prompts.tune_share", cfg.prompts.tune_share, 0, 1)
    require_number("power.probability", cfg.power.probability, 0, 1, open_ends=True)
    if not isinstance(cfg.power.difference, DictConfig):
        raise bad("power.difference", cfg.power.difference, "must be numbers by metric")
    for metric, difference in cfg.power.difference.items():
        require_number(f"power.difference.{metric}", difference, 0, open_ends=True)
    require_device_name("device", cfg.device)
    require_choice("store", cfg.store, ("files", "zip"))
    require_integer("pictures", cfg.pictures, 0)
    require_integer("keep_images", cfg.keep_images, 1, optional=True)
    if not isinstance(cfg.wait, bool):
        raise bad("wait", cfg.wait, "must be true or false")
