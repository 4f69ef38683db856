"""What runs inside a job: a share of a row's images, and what concerns all rows.

Both may be stopped and started again: images are there whole or not at all, so that a second
start does what is missing.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from submitit import JobEnvironment
from submitit.helpers import Checkpointable

from experiments.accelerators.build import build_method
from experiments.common import environment
from experiments.common.errors import RowFailed
from experiments.common.files import read_json, write_json
from experiments.runner import finish
from experiments.runner.one_row import paint_share, row_record
from experiments.runner.records import failed_record
from experiments.settings.folders import run_folder

log = logging.getLogger("catome")


class PaintShare(Checkpointable):
    """Paints every `shards`-th image of a row, from the `shard`-th on; each task of a job that has
    several takes an equal part of those."""

    def __call__(self, row: dict[str, Any], shard: int, shards: int) -> int:
        cfg, place = starting(row), JobEnvironment()
        own_device(cfg, place.local_rank)
        index = shard * place.num_tasks + place.global_rank
        return paint_and_record(cfg, index, shards * place.num_tasks)


class Finish(Checkpointable):
    """Evaluates, times and reports the rows that are painted; says which are not."""

    def __call__(self, cfg: dict[str, Any], rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
        configs = {name: OmegaConf.create(row) for name, row in rows.items()}
        return finish_rows(starting(cfg), configs)


def shares_of(cfg: DictConfig, rows: dict[str, DictConfig]) -> list[tuple[str, int, int]]:
    """(row, share, shares) of all that is to be painted; forgets earlier records of the rows."""
    shares = []
    for name, row in rows.items():
        (run_folder(cfg) / "rows" / f"{name}.json").unlink(missing_ok=True)
        # Images that depend on each other are painted by one task.
        count = 1 if build_method(row).order_dependent else row.generation.shards
        shares += [(name, index, count) for index in range(count)]
    return shares


def paint_and_record(cfg: DictConfig, index: int, count: int) -> int:
    """Paint a share of a row; returns how many images. A failure is kept as the row's record."""
    try:
        return paint_share(cfg, index, count)
    except Exception as error:
        record = failed_record(cfg, cfg.row, error)
        write_json(run_folder(cfg) / "rows" / f"{cfg.row}.json", record)
        raise


def finish_rows(cfg: DictConfig, rows: dict[str, DictConfig]) -> dict[str, Any]:
    """{"table": Markdown or None without the stage report, "failed": names of rows}."""
    failed = {}
    for name, row in rows.items():
        error = gathered(row, name)
        if error is not None:
            failed[name] = error
            log.error("row %s: %s", name, error)
    table, untimed = finish.finish(cfg, rows, failed)
    return {"table": table, "failed": [*failed, *untimed]}


def gathered(cfg: DictConfig, name: str) -> Exception | None:
    """Write the record of a row that tasks painted; returns why it cannot count as finished."""
    path = run_folder(cfg) / "rows" / f"{name}.json"
    if path.is_file() and read_json(path)["status"] == "failed":
        return RowFailed(read_json(path)["error"])
    record = row_record(cfg, name, paint=False)
    write_json(path, record)
    missing = record["prompts"] - record["images"]
    if missing and "generate" in cfg.stages:
        return RowFailed(
            f"{missing} of {record['prompts']} images missing: a task was killed or ran out of "
            "time; the same command paints them"
        )
    return None


def starting(settings: dict[str, Any]) -> DictConfig:
    """The configuration, with a log that says what runs where."""
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s")
    code = environment.code()
    log.info("commit %s, snapshot %s", code.get("commit"), code.get("snapshot", "none"))
    return OmegaConf.create(settings)


def own_device(cfg: DictConfig, local_rank: int) -> None:
    """One GPU a task where a node's tasks see several."""
    if cfg.device in ("auto", "cuda") and torch.cuda.device_count() > 1:
        cfg.device = f"cuda:{local_rank % torch.cuda.device_count()}"
