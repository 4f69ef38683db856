"""Experiment tracking: nothing, or Weights & Biases (offline unless told otherwise)."""

from __future__ import annotations

import logging
from pathlib import Path

from omegaconf import DictConfig

from experiments.config import require_choice, results_root
from experiments.store import read_json

log = logging.getLogger("catome")


def check(options: DictConfig) -> None:
    """Raise ConfigError for a tracker or mode that does not exist."""
    require_choice("tracking.name", options.name, ("none", "wandb"))
    if options.name == "wandb":
        require_choice("tracking.mode", options.mode, ("offline", "online"))


def log_experiment(cfg: DictConfig, folder: Path) -> None:
    """One tracked run a row, in the experiment's group, with its figures and settings.

    A tracker that cannot be reached is a warning: the experiment is finished by then.
    """
    if cfg.tracking.name == "none":
        return
    try:
        _log_to_wandb(cfg, folder)
    except Exception as error:
        log.warning("tracking=wandb: not logged: %s", str(error).splitlines()[0])


def _log_to_wandb(cfg: DictConfig, folder: Path) -> None:
    import wandb

    experiment = read_json(folder / "experiment.json")
    scores, times = {}, {}
    if (folder / "metrics.json").is_file():
        scores = read_json(folder / "metrics.json").get("figures", {})
    if (folder / "timing.json").is_file():
        times = read_json(folder / "timing.json")["rows"]
    for name in experiment["rows"]:
        row = read_json(folder / "rows" / f"{name}.json")
        with wandb.init(
            project=cfg.tracking.project,
            entity=cfg.tracking.entity,
            group=f"{experiment['benchmark']}/{experiment['name']}",
            name=name,
            config=row["settings"],
            mode=cfg.tracking.mode,
            dir=str(results_root(cfg)),
            settings=wandb.Settings(silent=True),
        ) as run:
            figures = {f"quality/{k}": v for k, v in scores.get(name, {}).items()}
            figures |= {
                f"time/{k}": v for k, v in times.get(name, {}).items() if not isinstance(v, list)
            }
            run.log({**figures, "merged_share": row["merged_share"], "status": row["status"]})
            grid = folder / "plots" / "grid.png"
            if grid.is_file():
                run.log({"grid": wandb.Image(str(grid))})
