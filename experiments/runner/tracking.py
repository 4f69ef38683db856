"""Experiment tracking: nothing, or Weights & Biases (offline unless told otherwise)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig

from experiments.common.errors import first_line
from experiments.common.requirements import require_choice
from experiments.report.run_folder import Row, Run, read_run
from experiments.settings.folders import results_root

log = logging.getLogger("catome")


def check(options: DictConfig) -> None:
    """Raise ConfigError for a tracker or mode that does not exist."""
    require_choice("tracking.name", options.name, ("none", "wandb"))
    if options.name == "wandb":
        require_choice("tracking.mode", options.mode, ("offline", "online"))


def log_experiment(cfg: DictConfig, folder: Path) -> None:
    """One tracked run a row, in the experiment's group: its figures and settings, its scores by
    image, the experiment's table and pictures.

    A tracker that cannot be reached is a warning: the experiment is finished by then.
    """
    if cfg.tracking.name == "none":
        return
    try:
        _log_to_wandb(cfg, read_run(folder))
    except Exception as error:
        log.warning("tracking=wandb: not logged: %s", first_line(error))


def _log_to_wandb(cfg: DictConfig, run: Run) -> None:
    import wandb

    table = pd.read_csv(run.folder / "table.csv", dtype=str, keep_default_na=False)
    plots = run.folder / "plots"
    for row in run.rows:
        with wandb.init(
            project=cfg.tracking.project,
            entity=cfg.tracking.entity,
            group=f"{run.experiment['benchmark']}/{run.experiment['name']}",
            name=row.name,
            config=row.record.get("settings") or {},
            mode=cfg.tracking.mode,
            dir=str(results_root(cfg)),
            settings=wandb.Settings(silent=True),
        ) as tracked:
            tracked.log(_figures(run, row))
            tables = {"table": wandb.Table(dataframe=table)}
            if run.scores is not None:
                images = run.scores.per_image
                own = images[images["row"] == row.name].drop(columns="row")
                tables["per_image"] = wandb.Table(dataframe=own.astype(object).where(own.notna()))
            pictures = {p.stem: wandb.Image(str(p)) for p in sorted(plots.glob("*.png"))}
            tracked.log(tables | pictures)


def _figures(run: Run, row: Row) -> dict[str, Any]:
    quality = {} if run.scores is None else run.scores.figures.get(row.name, {})
    return {
        **{f"quality/{name}": value for name, value in quality.items()},
        **{f"time/{name}": v for name, v in row.timing.items() if not isinstance(v, list)},
        "merged_share": row.merged_share,
        "status": row.record["status"],
    }
