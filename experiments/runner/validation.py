"""All settings of a run, checked before anything is loaded, the cheap ones first."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from experiments.common.requirements import require_list
from experiments.metrics.settings import check_metrics
from experiments.report.columns import COLUMNS
from experiments.runner import tracking
from experiments.settings.check import check


def validate(cfg: DictConfig, elsewhere: bool = False) -> None:
    """Raise ConfigError for the first setting of any stage that cannot be.

    Args:
        elsewhere: the stages run on another machine, whose devices are not known here.
    """
    check(cfg)
    require_list("columns", cfg.columns, COLUMNS)
    tracking.check(cfg.tracking)
    check_metrics(OmegaConf.to_container(cfg.metrics, resolve=True))
    # Imported here: these need torch, which takes seconds.
    from experiments.accelerators.build import build_method
    from experiments.models.device import require_device

    if not elsewhere:
        require_device(cfg)
    build_method(cfg)
