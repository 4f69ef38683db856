"""Where an experiment writes."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig


def results_root(cfg: DictConfig) -> Path:
    return Path(cfg.results)


def run_folder(cfg: DictConfig) -> Path:
    """Where the files of an experiment or of a single row lie, the same for every call of it."""
    return results_root(cfg) / cfg.benchmark.name / cfg.experiment.name
