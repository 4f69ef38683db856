"""Rows on one machine, a worker a GPU: each takes the next share when it has finished one."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from experiments.cluster.jobs import finish_rows, paint_and_record, shares_of, starting
from experiments.common.errors import bad
from experiments.common.files import write_json
from experiments.common.paths import ROOT
from experiments.runner import finish
from experiments.settings.folders import run_folder

log = logging.getLogger("catome")


@dataclass(frozen=True)
class Share:
    """A part of a row for one worker; `file` holds its configuration."""

    row: str
    index: int
    count: int
    file: Path


def run_rows(cfg: DictConfig, rows: dict[str, DictConfig], workers: int | None) -> None:
    """Paint all rows on `workers` workers (null: as many as there are GPUs), each a process with
    a GPU of its own, then evaluate, time and report here; prints the table.

    Raises:
        ConfigError: no GPU and no number of workers.
        RowsFailed: a row failed; the others are finished.
    """
    gpus = torch.cuda.device_count()
    if workers is None and gpus == 0:
        raise bad("hydra.launcher.workers", workers, "0 CUDA devices found; give a number")
    if "generate" in cfg.stages:
        paint(cfg, rows, workers or gpus, gpus)
    table, failed = finish_rows(cfg, rows).values()
    finish.tell(cfg, table, failed)


def paint(cfg: DictConfig, rows: dict[str, DictConfig], workers: int, gpus: int) -> None:
    shares = []
    for name, index, count in shares_of(cfg, rows):
        file = run_folder(cfg) / "jobs" / f"{name}.{index}.json"
        write_json(file, OmegaConf.to_container(rows[name], resolve=True))
        shares.append(Share(name, index, count, file))
    free: SimpleQueue[int] = SimpleQueue()
    for worker in range(workers):
        free.put(worker)
    with ThreadPoolExecutor(workers) as pool:  # of threads that wait for processes
        for share, code in pool.map(lambda share: work(share, free, gpus), shares):
            if code:
                log.error("row %s %d/%d: its worker ended with %d", share.row, share.index + 1,
                          share.count, code)  # fmt: skip


def work(share: Share, free: SimpleQueue[int], gpus: int) -> tuple[Share, int]:
    """Run one share on a free worker's GPU; returns the exit code of its process."""
    worker = free.get()
    env = dict(os.environ)
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = visible(worker % gpus)
    command = [sys.executable, "-m", "experiments.cluster.local", str(share.file.resolve()),
               str(share.index), str(share.count)]  # fmt: skip
    try:
        with share.file.with_suffix(".log").open("w") as file:
            env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
            done = subprocess.run(command, env=env, stdout=file, stderr=subprocess.STDOUT)
    finally:
        free.put(worker)
    log.info("row %s %d/%d: done", share.row, share.index + 1, share.count)
    return share, done.returncode


def visible(index: int) -> str:
    """The name of a GPU of this process for a child's CUDA_VISIBLE_DEVICES."""
    own = os.environ.get("CUDA_VISIBLE_DEVICES")
    return own.split(",")[index] if own else str(index)


def main(argv: list[str]) -> int:
    file, index, count = argv
    settings: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    paint_and_record(starting(settings), int(index), int(count))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
