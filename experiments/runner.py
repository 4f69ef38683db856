"""What a command does: a row's own stages, then what concerns all rows together.

`run_row` paints one row and is a Hydra job of its own. `finish` evaluates, times and reports all
rows of an experiment in this process. `run_cell` is both, for a single row.
"""

from __future__ import annotations

import logging
import os
import traceback
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments import (
    environment,
    evaluate,
    generate,
    pipelines,
    prompts,
    protocols,
    timing,
    tracking,
)
from experiments.config import (
    ConfigError,
    RowFailed,
    RowsFailed,
    build_method,
    check,
    device,
    evaluations_of,
    results_root,
    run_folder,
)
from experiments.evaluate.context import hash_index
from experiments.evaluate.hashes import known_hashes
from experiments.explain.equivalents import equivalents_of
from experiments.facts import image_facts
from experiments.report import write_report
from experiments.store import (
    ImageStore,
    Painted,
    Prompt,
    differing_keys,
    digest,
    read_json,
    write_json,
    write_text,
)

log = logging.getLogger("catome")


def validate(cfg: DictConfig, elsewhere: bool = False) -> None:
    """Raise ConfigError for the first setting of any stage that cannot be.

    Args:
        elsewhere: the stages run on another machine, whose devices are not known here.
    """
    check(cfg, elsewhere)
    evaluate.check_metrics(OmegaConf.to_container(cfg.metrics, resolve=True))
    tracking.check(cfg.tracking)


def load_prompts(cfg: DictConfig) -> tuple[list[Prompt], dict[str, Any]]:
    data = results_root(cfg) / "data"
    return prompts.load(cfg.prompts, cfg.seed, data, cfg.replicates)


def run_row(cfg: DictConfig) -> None:
    """Paint what is missing of one row and write `rows/<row>.json`."""
    validate(cfg)
    folder, name = run_folder(cfg), cfg.row
    if "generate" in cfg.stages or not (folder / "rows" / f"{name}.json").is_file():
        paint = "generate" in cfg.stages
        write_json(folder / "rows" / f"{name}.json", row_record(cfg, name, paint))


def paint_share(cfg: DictConfig, index: int, count: int) -> int:
    """Paint what is missing of the images `index`, `index + count`, ... of a row and keep the
    features that the stage evaluate will ask of them; returns how many were painted.
    Order-dependent rows are painted whole by the first share."""
    validate(cfg)
    chosen, _ = load_prompts(cfg)
    pipe, method = pipelines.load(cfg), build_method(cfg)
    store = image_store(cfg, pipe, method, chosen)
    if method.order_dependent:
        index, count = (0, 1) if index == 0 else (len(chosen), 1)
    label = cfg.row if count == 1 else f"{cfg.row} {index + 1}/{count}"
    share = chosen[index::count]
    of = generate.images_of_a_replicate(chosen)
    painted = generate.paint(cfg, pipe, method, store, share, label, of=of)
    if cfg.store == "zip":
        store.pack(share)
    if "evaluate" in cfg.stages:
        metrics = OmegaConf.to_container(cfg.metrics, resolve=True)
        row = store.painted(cfg.row, share)
        evaluate.keep_features(row, metrics, results_root(cfg), str(device(cfg)))
    return painted


def row_record(cfg: DictConfig, name: str, paint: bool) -> dict[str, Any]:
    """Paint a row (if told to) and say what it is and what merged."""
    chosen, rule = load_prompts(cfg)
    pipe, method = pipelines.load(cfg), build_method(cfg)
    for warning in method.warnings(evaluations_of(cfg.generation.scheduler, cfg.generation.steps)):
        log.warning("%s: %s", name, warning)
    listed = prompts.manifest(chosen, rule, pipe.tokenizer)
    store = image_store(cfg, pipe, method, chosen)
    if paint:
        warn_of_other_painters(cfg, store, name)
        generate.paint(cfg, pipe, method, store, chosen, name)
        if cfg.store == "zip":
            store.pack(chosen)
    return {
        "row": name,
        "status": "done",
        "error": None,
        "columns": columns_of(cfg, method.columns()),
        "against": cfg.against,
        "painter": store.painter,
        "prompts": len(chosen),
        "images": len(chosen) - len(store.missing(chosen)),
        **image_facts(store, chosen),
        "order_dependent": method.order_dependent,
        "settings": flat(cfg),
        "manifest": {key: listed[key] for key in ("digest", "truncated", "token_limit", "rule")},
    }


def columns_of(cfg: DictConfig, of_method: dict[str, Any]) -> dict[str, Any]:
    """What the table can say of a row; it shows what its layout names and what rows differ in."""
    options = cfg.generation
    return {
        **of_method,
        "steps": options.steps,
        "width": options.width,
        "height": options.height,
        "attention": cfg.attention,
        "batch": cfg.timing.batch_size,
    }


def image_store(cfg: DictConfig, pipe, method, chosen: list[Prompt]) -> ImageStore:
    identity = pipelines.painter_identity(cfg, pipe.scheduler, method)
    if method.order_dependent:
        identity["order"] = {
            "batch_size": cfg.generation.batch_size,
            "prompts": digest([[p.text, p.seed] for p in chosen]),
        }
    return ImageStore(results_root(cfg), identity)


def warn_of_other_painters(cfg: DictConfig, store: ImageStore, name: str) -> None:
    """Say which keys changed where this row was painted before under another identity."""
    path = run_folder(cfg) / "rows" / f"{name}.json"
    if not path.is_file():
        return
    before = read_json(path).get("painter")
    known = results_root(cfg) / "images" / str(before) / "painter.json"
    if before != store.painter and known.is_file():
        keys = ", ".join(differing_keys(read_json(known), store.identity))
        log.warning("%s: painted anew, its earlier images differ in %s", name, keys)


def flat(cfg: DictConfig) -> dict[str, Any]:
    """Every setting that a row has, dotted; the experiment's own keys left out."""
    skipped = (
        "experiment",
        "protocol",
        "sweep",
        "observe",
        "rows",
        "columns",
        "row",
        "against",
        "stages",
        "debug",
        "tracking",
        "results",
        "wait",
        "store",
        "keep_images",
        "pictures",
        "plan",
        "power",
    )
    out: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        else:
            out[prefix] = value

    whole = OmegaConf.to_container(cfg, resolve=True)
    walk("", {k: v for k, v in whole.items() if k not in skipped})
    return out


def failed_record(cfg: DictConfig, name: str, error: BaseException) -> dict[str, Any]:
    try:
        columns = build_method(cfg).columns()
    except ConfigError:
        columns = {"method": cfg.method.get("name"), "caching": None}
    columns = columns_of(cfg, columns)
    message = str(error).splitlines()[0] if str(error) else ""
    told = isinstance(error, (ConfigError, RowFailed))
    kind = "" if told else f"{type(error).__name__}: "
    return {
        "row": name,
        "status": "failed",
        "error": f"{kind}{message}",
        "columns": columns,
        "images": 0,
        "merged_share": None,
        "order_dependent": False,
        "settings": flat(cfg),
    }


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
    scores = evaluate.evaluate_rows(
        list(painted.values()), baseline, metrics, cache, str(device(cfg))
    )
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
    rows = [timing.Row(name, row, build_method(row)) for name, row in good.items()]
    warmup = prompts.warmup(cfg.prompts.kind, len(prompts.WARMUP_PROMPTS))
    measured = timing.time_rows(rows, cfg.experiment.baseline, chosen, warmup)
    write_json(folder / "timing.json", measured)
    errors = {n: f["error"] for n, f in measured["rows"].items() if "error" in f}
    for name, error in errors.items():
        log.error("row %s could not be timed: %s", name, error)
    return list(errors)


def experiment_record(cfg: DictConfig, rows: list[str]) -> dict[str, Any]:
    experiment = OmegaConf.to_container(cfg.experiment, resolve=True)
    varied = {key for template in experiment["rows"] for key in template} - {"row", "each"}
    return {
        **experiment,
        "benchmark": cfg.benchmark.name,
        "rows": rows,
        "varied": sorted(varied),
        "columns": list(cfg.columns),
        "pictures": cfg.pictures,
        "notes": notes(cfg),
        "protocol": OmegaConf.select(cfg, "protocol.name"),
        "departures": protocols.departures(cfg),
        "code": environment.code(),
    }


def notes(cfg: DictConfig) -> list[str]:
    """What a reader has to know of the runs beside their settings."""
    lines = []
    if cfg.benchmark.name == "toy":
        lines.append("The toy world is a small model trained for this project; its figures are no "
                     "statement about Stable Diffusion.")  # fmt: skip
    else:
        lines.append("The safety checker is off.")
    return lines


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


def debug_row(cfg: DictConfig, name: str) -> None:
    """Two prompts in this process, a line for each match; exceptions go up as they are."""
    validate(cfg)
    chosen, _ = load_prompts(cfg)
    pipe, method = pipelines.load(cfg), build_method(cfg)
    store = ImageStore(
        results_root(cfg) / "debug", pipelines.painter_identity(cfg, pipe.scheduler, method)
    )
    store.clear()
    generate.paint(cfg, pipe, method, store, chosen[:2], name, on_match=print)
    for prompt in chosen[:2]:
        print(store.path(prompt))


def report_exception(name: str, error: BaseException) -> None:
    """A row's error in the log: one line for a setting, a traceback for anything else."""
    if isinstance(error, ConfigError):
        log.error("row %s: %s", name, error)
    else:
        log.error("row %s failed\n%s", name, "".join(traceback.format_exception(error)))
