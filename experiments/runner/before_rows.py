"""What an experiment does before its rows can be composed."""

from __future__ import annotations

from omegaconf import DictConfig

from experiments.analysis.find_schedule import find
from experiments.common.requirements import require_choice

BEFORE = {"find_schedule": find}


def before_rows(cfg: DictConfig) -> None:
    """Do what `experiment.before` names; the configuration has been validated."""
    require_choice("experiment.before", cfg.experiment.before, BEFORE)
    BEFORE[cfg.experiment.before](cfg)
