"""Rows to jobs: an array of painting tasks, then one job that evaluates, times and reports."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit
from omegaconf import DictConfig, OmegaConf
from submitit.core.utils import FailedJobError, UncompletedJobError

from experiments.cluster import snapshot
from experiments.cluster.jobs import Finish, PaintShare, shares_of
from experiments.common.errors import RowsFailed
from experiments.common.files import write_json
from experiments.runner.finish import tell
from experiments.settings.folders import results_root, run_folder

log = logging.getLogger("catome")
EXECUTOR_KEYS = ("submitit_folder", "max_num_timeout")
FINISH = "evaluates, times and reports"
SHARED_KEYS = (  # of all of submitit's executors; the others are SLURM's
    "timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name",
    "stderr_to_stdout",
)  # fmt: skip


@dataclass
class Task:
    """A row's share and the job that paints it, or the job that finishes all rows."""

    row: str
    shard: int
    job: submitit.Job[Any]
    attempts: int = 1

    @property
    def named(self) -> str:
        return self.row if self.row == FINISH else f"row {self.row}"


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
    if not cfg.wait:
        final = finish(cfg, plain, options, [task.job for task in tasks])
        write_jobs(cfg, tasks, final)
        print(f"submitted: {described(tasks)}, then {final.job.job_id}; gather what is there with "
              f"stages=[report]")  # fmt: skip
        return
    for _ in rounds(tasks, options, retries, poll):
        write_jobs(cfg, tasks, None)
    final = finish(cfg, plain, options, [])
    for _ in rounds([final], alone(options), retries, poll):
        write_jobs(cfg, tasks, final)
    if killed(final):
        raise RowsFailed(
            f"job {final.job.job_id}, which {final.row}, ended as {final.job.state} without a "
            f"result (its log: {final.job.paths.stderr}); what was painted is kept, and the same "
            "command goes on"
        )
    table, failed = final.job.result().values()
    tell(cfg, table, failed)


def rounds(tasks: list[Task], options: dict[str, Any], retries: int, poll: float) -> Iterator[None]:
    """Wait for tasks, and start those that were killed again, as long as they have retries left;
    yields whenever jobs were started."""
    again = tasks
    while again:
        yield
        watch(tasks, poll)
        again = [task for task in tasks if killed(task) and task.attempts <= retries]
        for task in again:
            log.warning("%s: job %s was killed; started again", task.named, task.job.job_id)
        resubmit(again, options)


def paint(
    cfg: DictConfig, rows: dict[str, DictConfig], plain: dict[str, Any], options: dict[str, Any]
) -> list[Task]:
    shares = shares_of(cfg, rows)
    given = [(plain[name], index, count) for name, index, count in shares]
    jobs = executor(options).map_array(PaintShare(), *zip(*given, strict=True))
    return [Task(name, index, job) for (name, index, _), job in zip(shares, jobs, strict=True)]


def resubmit(tasks: list[Task], options: dict[str, Any]) -> None:
    given = [task.job.submission() for task in tasks]
    if given:
        arguments = zip(*(each.args for each in given), strict=True)
        jobs = executor(options).map_array(given[0].function, *arguments)
        for task, job in zip(tasks, jobs, strict=True):
            task.job, task.attempts = job, task.attempts + 1


def finish(
    cfg: DictConfig, plain: dict[str, Any], options: dict[str, Any], after: list[submitit.Job[Any]]
) -> Task:
    """One exclusive job for the stages that concern all rows, after the jobs given."""
    own = alone(options)
    if after:
        ids = sorted({job.job_id.split("_")[0] for job in after})
        own["additional_parameters"]["dependency"] = f"afterany:{':'.join(ids)}"
    settings = OmegaConf.to_container(cfg, resolve=True)
    return Task(FINISH, 0, executor(own).submit(Finish(), settings, plain))


def alone(options: dict[str, Any]) -> dict[str, Any]:
    """Nothing else may run where rows are timed."""
    more = {**(options.get("additional_parameters") or {}), "exclusive": True}
    return {**options, "additional_parameters": more, "tasks_per_node": 1, "nodes": 1}


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
        for name in dict.fromkeys(task.named for task in tasks):
            states = Counter(
                "DONE" if task not in waiting else task.job.state
                for task in tasks if task.named == name
            )  # fmt: skip
            now = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            if said.get(name) != now:
                log.info("%s: %s", name, now)
                said[name] = now
        if not waiting:
            return
        time.sleep(poll)


def killed(task: Task) -> bool:
    """Whether a task ended without a word: no result, no exception of its own. What somebody
    cancelled is meant to end."""
    error = task.job.exception()
    # submitit's FailedJobError, which tells an exception of the task's own, is one of these too.
    silent = isinstance(error, UncompletedJobError) and not isinstance(error, FailedJobError)
    return silent and not task.job.state.startswith("CANCELLED")


def described(tasks: list[Task]) -> str:
    ids = sorted({task.job.job_id.split("_")[0] for task in tasks})
    return f"{len(tasks)} painting tasks as {' '.join(ids)}" if tasks else "no painting tasks"


def write_jobs(cfg: DictConfig, tasks: list[Task], final: Task | None) -> None:
    """`jobs.json` in the run's folder: which job does what, and where its logs are."""
    painting = [{"row": task.row, "shard": task.shard, **facts(task)} for task in tasks]
    last = None if final is None else facts(final)
    write_json(Path(run_folder(cfg)) / "jobs.json", {"painting": painting, "finish": last})


def facts(task: Task) -> dict[str, Any]:
    log_file = str(task.job.paths.stderr)
    return {"job": task.job.job_id, "attempts": task.attempts, "log": log_file}
