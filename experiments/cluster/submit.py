"""Rows to jobs: an array of painting tasks, then one job that evaluates, times and reports."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from omegaconf import DictConfig, OmegaConf
from submitit.core.utils import UncompletedJobError

from experiments import runner
from experiments.cluster import snapshot
from experiments.cluster.jobs import Finish, PaintShare, shares_of
from experiments.config import results_root, run_folder
from experiments.store import write_json

log = logging.getLogger("catome")
EXECUTOR_KEYS = ("submitit_folder", "max_num_timeout")
SHARED_KEYS = (  # of all of submitit's executors; the others are SLURM's
    "timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name",
    "stderr_to_stdout",
)  # fmt: skip


@dataclass
class Task:
    """A row's share and the job that paints it."""

    row: str
    shard: int
    job: submitit.Job[Any]
    attempts: int = 1


def submit_rows(cfg: DictConfig, rows: dict[str, DictConfig], options: dict[str, Any]) -> None:
    """Run an experiment's rows on SLURM; prints the table, or with `wait=false` the job ids.

    Args:
        cfg: of the experiment.
        rows: {name: the row's own configuration}.
        options: of the launcher: those of hydra-submitit-launcher, `retries` and `poll_s`.

    Raises:
        RowsFailed: a row failed; the others are finished.
    """
    options = dict(options)
    retries, poll = options.pop("retries"), options.pop("poll_s")
    code = snapshot.take(results_root(cfg).absolute() / "code")
    log.info("%s", snapshot.described(code))
    options["setup"] = [*snapshot.setup_lines(code), *(options.get("setup") or [])]
    plain = {name: OmegaConf.to_container(row, resolve=True) for name, row in rows.items()}
    tasks = paint(cfg, rows, plain, options) if "generate" in cfg.stages else []
    write_jobs(cfg, tasks, None)
    if not cfg.wait:
        final = finish(cfg, plain, options, [task.job for task in tasks])
        write_jobs(cfg, tasks, final)
        print(f"submitted: {described(tasks)}, then {final.job_id}; gather what is there with "
              f"stages=[report]")  # fmt: skip
        return
    while True:
        watch(tasks, poll)
        again = [task for task in tasks if killed(task) and task.attempts <= retries]
        if not again:
            break
        for task in again:
            log.warning("row %s: job %s was killed; started again", task.row, task.job.job_id)
        resubmit(again, options)
        write_jobs(cfg, tasks, None)
    final = finish(cfg, plain, options, [])
    write_jobs(cfg, tasks, final)
    table, failed = final.result().values()
    runner.tell(cfg, table, failed)


def paint(
    cfg: DictConfig, rows: dict[str, DictConfig], plain: dict[str, Any], options: dict[str, Any]
) -> list[Task]:
    shares = shares_of(cfg, rows)
    given = [(plain[name], index, count) for name, index, count in shares]
    jobs = executor(options).map_array(PaintShare(), *zip(*given, strict=True))
    return [Task(name, index, job) for (name, index, _), job in zip(shares, jobs, strict=True)]


def resubmit(tasks: list[Task], options: dict[str, Any]) -> None:
    given = [task.job.submission().args for task in tasks]
    jobs = executor(options).map_array(PaintShare(), *zip(*given, strict=True))
    for task, job in zip(tasks, jobs, strict=True):
        task.job, task.attempts = job, task.attempts + 1


def finish(
    cfg: DictConfig, plain: dict[str, Any], options: dict[str, Any], after: list[submitit.Job[Any]]
) -> submitit.Job[Any]:
    """One exclusive job for the stages that concern all rows, after the jobs given."""
    more = dict(options.get("additional_parameters") or {})
    more["exclusive"] = True  # nothing else may run where rows are timed
    if after:
        ids = sorted({job.job_id.split("_")[0] for job in after})
        more["dependency"] = f"afterany:{':'.join(ids)}"
    own = {**options, "additional_parameters": more, "tasks_per_node": 1, "nodes": 1}
    return executor(own).submit(Finish(), OmegaConf.to_container(cfg, resolve=True), plain)


def executor(options: dict[str, Any]) -> submitit.AutoExecutor:
    made = submitit.AutoExecutor(
        folder=options["submitit_folder"],
        cluster="slurm",
        slurm_max_num_timeout=options["max_num_timeout"],
    )
    made.update_parameters(**{
        key if key in SHARED_KEYS else f"slurm_{key}": value
        for key, value in options.items() if key not in EXECUTOR_KEYS
    })  # fmt: skip
    return made


def watch(tasks: list[Task], poll: float) -> None:
    """Wait until all tasks have ended, saying when a row's states change."""
    said: dict[str, str] = {}
    while True:
        waiting = [task for task in tasks if not task.job.done()]
        for row in dict.fromkeys(task.row for task in tasks):
            states = Counter(
                "DONE" if task not in waiting else task.job.state
                for task in tasks if task.row == row
            )  # fmt: skip
            now = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            if said.get(row) != now:
                log.info("row %s: %s", row, now)
                said[row] = now
        if not waiting:
            return
        time.sleep(poll)


def killed(task: Task) -> bool:
    """Whether a task ended without a word: no result, no exception of its own. What somebody
    cancelled is meant to end."""
    silent = isinstance(task.job.exception(), UncompletedJobError)
    return silent and not task.job.state.startswith("CANCELLED")


def described(tasks: list[Task]) -> str:
    ids = sorted({task.job.job_id.split("_")[0] for task in tasks})
    return f"{len(tasks)} painting tasks as {' '.join(ids)}" if tasks else "no painting tasks"


def write_jobs(cfg: DictConfig, tasks: list[Task], final: submitit.Job[Any] | None) -> None:
    """`jobs.json` in the run's folder: which job does what, and where its logs are."""
    listed = [
        {"row": t.row, "shard": t.shard, "job": t.job.job_id, "attempts": t.attempts,
         "log": str(t.job.paths.stderr)}
        for t in tasks
    ]  # fmt: skip
    last = None if final is None else {"job": final.job_id, "log": str(final.paths.stderr)}
    write_json(Path(run_folder(cfg)) / "jobs.json", {"painting": listed, "finish": last})
