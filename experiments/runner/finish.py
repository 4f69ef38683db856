"""What a command does: a row's own stages, then what concerns all rows together.

`run_row` paints one row and is a Hydra job of its own. `finish` evaluates, times and reports all
rows of an experiment in this process. `run_cell` is both, for a single row.
"""

from __future__ import annotations

import logging
import os
import traceback
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.accelerators.build import build_method
from experiments.common.errors import ConfigError, RowsFailed
from experiments.common.files import digest, read_json, write_json, write_text
from experiments.metrics.context import hash_index
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.hashes import known_hashes
from experiments.models import pipelines
from experiments.models.device import device
from experiments.painting import prompts
from experiments.painting.prompts import load_prompts
from experiments.painting.store import ImageStore, Painted
from experiments.report.entry import write_report
from experiments.runner import tracking
from experiments.runner.equivalents import equivalents_of
from experiments.runner.one_row import row_record, run_row
from experiments.runner.records import experiment_record, failed_record, flat
from experiments.runner.validation import validate
from experiments.settings.folders import results_root, run_folder
from experiments.timing.stage import time_rows
from experiments.timing.turns import TimedRow

log = logging.getLogger("catome")


def finish(
    cfg: DictConfig, rows: dict[str, DictConfig], failed: dict[str, BaseException]
) -> tuple[str | None, list[str]]:
    """Evaluate, time and report rows that were painted; returns the printed table (None without
    the stage report) and the rows that could not be timed.

    Args:
        cfg: of the experiment.
        rows: {name: the row's own configuration}, in the table's order.
        failed: rows whose job ended in an exception.
    """
    folder, stages = run_folder(cfg), list(cfg.stages)
    for name, error in failed.items():
        write_json(folder / "rows" / f"{name}.json", failed_record(rows[name], name, error))
    write_json(folder / "experiment.json", experiment_record(cfg, list(rows)))
    write_text(folder / "config.yaml", OmegaConf.to_yaml(cfg, resolve=True))
    good = {name: row for name, row in rows.items() if name not in failed}
    untimed: list[str] = []
    painted: dict[str, Painted] = {}
    if good:
        chosen, rule = load_prompts(cfg)
        if {"generate", "evaluate", "time"} & set(stages):
            pipe = pipelines.load(next(iter(good.values())))
            write_json(folder / "manifest.json", prompts.manifest(chosen, rule, pipe.tokenizer))
        if "time" in stages:
            untimed = time_stage(cfg, good, chosen, folder)
        paintings = paint_equivalents(cfg, good, folder) if "steps" in cfg.columns else {}
        painted = complete_rows(cfg, good | paintings, folder)
        if "evaluate" in stages and painted:
            evaluate_stage(cfg, painted, folder)
    table = None
    if "report" in stages:
        table = write_report(folder)
        tracking.log_experiment(cfg, folder)
    if cfg.keep_images is not None and "evaluate" in stages:
        if set(rows) <= set(painted):
            leave_out(cfg, painted)
        else:
            log.warning("keep_images: all images are kept as long as a row is unfinished")
    return table, untimed


def leave_out(cfg: DictConfig, painted: dict[str, Painted]) -> None:
    """Delete all but the first `keep_images` of each row's images, which were evaluated."""
    root = results_root(cfg)
    for row in painted.values():
        store = ImageStore(root, read_json(root / "images" / row.painter / "painter.json"))
        gone = slice(cfg.keep_images, None)
        hashes = known_hashes(*hash_index(root, row))
        count = store.leave_out(list(row.prompts[gone]), hashes[gone])
        log.info("%s: %d images left out, %d kept", row.row, count, cfg.keep_images)


def paint_equivalents(
    cfg: DictConfig, good: dict[str, DictConfig], folder: Path
) -> dict[str, DictConfig]:
    """Paint what rows are compared with at equal time and note it in `experiment.json`; returns
    {name: configuration} of those that are painted."""
    compared, paintings = equivalents_of(cfg, good, folder)
    if not compared:
        log.warning("columns=steps: needs the baseline's and the rows' times; run the stage time")
        return {}
    for name, painting in paintings.items():
        if "generate" in cfg.stages:
            write_json(folder / "rows" / f"{name}.json", row_record(painting, name, True))
    record = read_json(folder / "experiment.json") | {"equivalents": compared}
    write_json(folder / "experiment.json", record)
    return {n: c for n, c in paintings.items() if (folder / "rows" / f"{n}.json").is_file()}


def evaluate_stage(cfg: DictConfig, painted: dict[str, Painted], folder: Path) -> None:
    baseline = painted.get(cfg.experiment.baseline)
    metrics = OmegaConf.to_container(cfg.metrics, resolve=True)
    cache = results_root(cfg)
    scores = evaluate_rows(list(painted.values()), baseline, metrics, cache, str(device(cfg)))
    scores.save(folder)


def complete_rows(cfg: DictConfig, good: dict[str, DictConfig], folder: Path) -> dict[str, Painted]:
    """{row: its images} of the rows that have all of them; writes `painted.json`."""
    painted, lists = {}, {}
    for name, row in good.items():
        # Rows may differ in seed and replicates; each list is read once.
        key = (OmegaConf.to_yaml(row.prompts), row.seed, row.replicates)
        if key not in lists:
            lists[key], _ = load_prompts(row)
        chosen = lists[key]
        record = read_json(folder / "rows" / f"{name}.json")
        if record["status"] == "failed":  # by an earlier call; this one did not paint
            continue
        identity = results_root(cfg) / "images" / record["painter"] / "painter.json"
        if not identity.is_file():
            if "evaluate" in cfg.stages:
                log.warning("%s: not painted yet; run the stage generate", name)
            continue
        store = ImageStore(results_root(cfg), read_json(identity))
        missing = store.missing(chosen)
        if missing:
            total = len(chosen)
            log.warning("%s: %d of %d images missing; run generate", name, len(missing), total)
            continue
        painted[name] = store.painted(name, chosen)
    paths = {
        name: [os.path.relpath(path, folder) for path in row.images]
        for name, row in painted.items()
    }
    write_json(folder / "painted.json", paths)
    return painted


def time_stage(cfg: DictConfig, good: dict[str, DictConfig], chosen, folder: Path) -> list[str]:
    """Write `timing.json`; returns the rows that failed, with their errors logged."""
    rows = [TimedRow(name, row, build_method(row)) for name, row in good.items()]
    warmup = prompts.warmup(cfg.prompts.kind, len(prompts.WARMUP_PROMPTS))
    measured = time_rows(rows, cfg.experiment.baseline, chosen, warmup)
    write_json(folder / "timing.json", measured)
    errors = {n: f["error"] for n, f in measured["rows"].items() if "error" in f}
    for name, error in errors.items():
        log.error("row %s could not be timed: %s", name, error)
    return list(errors)


def conclude(
    cfg: DictConfig, rows: dict[str, DictConfig], failed: dict[str, BaseException]
) -> None:
    """`finish`, print the table, and raise RowsFailed if a row failed."""
    table, untimed = finish(cfg, rows, failed)
    tell(cfg, table, [*failed, *untimed])


def tell(cfg: DictConfig, table: str | None, failed: list[str]) -> None:
    """Print the table and where everything lies; RowsFailed names rows that failed."""
    if table is not None:
        print(f"\n{table}\n\n{run_folder(cfg)}")
    if failed:
        raise RowsFailed(f"rows failed: {', '.join(failed)}; the others are finished")


def run_cell(cfg: DictConfig) -> None:
    """One row by itself: `python run.py method=...`."""
    validate(cfg)
    method = build_method(cfg)
    name = f"{method.name}-{digest(flat(cfg), 8)}"
    OmegaConf.set_struct(cfg, False)
    cfg.row = name
    cfg.experiment.name = f"cell/{name}"
    run_row(cfg)
    conclude(cfg, {name: cfg}, {})


def report_exception(name: str, error: BaseException) -> None:
    """A row's error in the log: one line for a setting, a traceback for anything else."""
    if isinstance(error, ConfigError):
        log.error("row %s: %s", name, error)
    else:
        log.error("row %s failed\n%s", name, "".join(traceback.format_exception(error)))
