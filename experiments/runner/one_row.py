"""A row's own stages: paint what is missing of it, and say what it is."""

from __future__ import annotations

import logging
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.accelerators.build import build_method
from experiments.common.files import digest, read_json, write_json
from experiments.metrics.entry import keep_features
from experiments.models import pipelines
from experiments.models.device import device
from experiments.models.evaluations import evaluations_of
from experiments.painting import generate, prompts
from experiments.painting.facts import image_facts
from experiments.painting.identity import painter_identity
from experiments.painting.prompts import load_prompts
from experiments.painting.store import ImageStore, Prompt, differing_keys
from experiments.runner.records import columns_of, flat
from experiments.runner.validation import validate
from experiments.settings.folders import results_root, run_folder

log = logging.getLogger("catome")


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
        keep_features(row, metrics, results_root(cfg), str(device(cfg)))
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


def image_store(cfg: DictConfig, pipe, method, chosen: list[Prompt]) -> ImageStore:
    identity = painter_identity(cfg, pipe.scheduler, method)
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


def debug_row(cfg: DictConfig, name: str) -> None:
    """Two prompts in this process, a line for each match; exceptions go up as they are."""
    validate(cfg)
    chosen, _ = load_prompts(cfg)
    pipe, method = pipelines.load(cfg), build_method(cfg)
    store = ImageStore(results_root(cfg) / "debug", painter_identity(cfg, pipe.scheduler, method))
    store.clear()
    generate.paint(cfg, pipe, method, store, chosen[:2], name, on_match=print)
    for prompt in chosen[:2]:
        print(store.path(prompt))
