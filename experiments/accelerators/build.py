"""The accelerator that a configuration describes."""

from __future__ import annotations

from hydra.utils import instantiate
from omegaconf import DictConfig

from experiments.accelerators.base import Method
from experiments.common.errors import ConfigError, bad, first_line
from experiments.models.evaluations import evaluations_of


def build_method(cfg: DictConfig) -> Method:
    """The accelerator `cfg.method` describes."""
    try:
        method = instantiate(cfg.method, _convert_="all")
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, ValueError):
            raise ConfigError(f"method.{cause}") from None
        if isinstance(cause, (TypeError, ImportError, AttributeError, ModuleNotFoundError)):
            target = cfg.method.get("_target_")
            raise bad("method._target_", target, first_line(cause)) from error
        raise
    if not isinstance(method, Method):
        kind = type(method).__name__
        raise bad(
            "method._target_", cfg.method.get("_target_"),
            f"makes a {kind}; must be a subclass of experiments.accelerators.base.Method",
        )  # fmt: skip
    method.prepare(evaluations_of(cfg.generation.scheduler, cfg.generation.steps))
    return method
