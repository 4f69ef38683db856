"""`+experiment=find_schedule`: before its rows, find the schedules that they use.

Everything is chosen on the tune split of the prompts and reported on the other.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

import catome
from experiments.accelerators.schedule_file import write_schedule
from experiments.analysis.panels import block_panels
from experiments.analysis.reuse_cost import reuse_costs
from experiments.analysis.search import best_checkpoints, cost_of, random_checkpoints
from experiments.common.errors import bad, plain
from experiments.common.files import digest, read_json, write_json
from experiments.common.requirements import require_integer
from experiments.models import identity, pipelines
from experiments.painting.prompts import load as load_prompts
from experiments.report.plots import COLOURS, MARKERS, save
from experiments.settings.folders import results_root, run_folder

log = logging.getLogger("catome")


def find(cfg: DictConfig) -> None:
    """Write `schedules/found.json`, `found_by_block.json` and `random_<seed>.json` into the run's
    folder, with the costs they were found from; nothing where they are there already, or where
    nothing is to be painted.

    Args:
        cfg: of the experiment; `method` is the one whose matches are re-used, `sweep.matches` the
            number of checkpoints, `sweep.tune` of prompts of the tune split, `sweep.random` the
            seeds of random lists of the same length.
    """
    for key in ("matches", "tune"):
        require_integer(f"sweep.{key}", cfg.sweep[key], 1)
    sweep = {key: plain(cfg.sweep[key]) for key in ("matches", "tune", "random")}
    if not isinstance(sweep["random"], list):
        raise bad("sweep.random", sweep["random"], "must be a list of seeds")
    for seed in sweep["random"]:
        require_integer("sweep.random", seed, 0)
    folder = run_folder(cfg) / "schedules"
    options = OmegaConf.merge(cfg.prompts, {"split": "tune", "limit": cfg.sweep.tune})
    chosen, rule = load_prompts(options, cfg.seed, results_root(cfg) / "data")
    settings = {
        "method": OmegaConf.to_container(cfg.method, resolve=True),
        "generation": OmegaConf.to_container(cfg.generation, resolve=True),
        "model": identity.model_identity(pipelines.locate(str(cfg.model.path)), None),
        "prompts": digest([[p.text, p.seed] for p in chosen]),
        "sweep": sweep,
    }
    found_from = folder / "found_from.json"
    if found_from.is_file():
        same = read_json(found_from)["digest"] == digest(settings)
        if same or "generate" not in cfg.stages:
            return
    costs = reuse_costs(cfg, chosen)
    length = len(next(iter(costs.values())))
    if cfg.sweep.matches > length:
        raise bad("sweep.matches", cfg.sweep.matches, f"at most {length}, all evaluations")
    write_costs(folder / "costs.csv", costs)
    listed = write_schedules(folder, costs, sweep["matches"], sweep["random"])
    plot_costs(costs, listed, run_folder(cfg) / "plots")
    facts = {"settings": settings, "rule": rule, "costs": listed, "digest": digest(settings)}
    write_json(found_from, facts)
    for name, total in sorted(listed.items(), key=lambda item: item[1]):
        log.info("cost of re-use %.3f: %s", total, name)


def write_schedules(
    folder: Path, costs: dict[str, np.ndarray], matches: int, seeds: list[int]
) -> dict[str, float]:
    """Write the files; returns {name: cost summed over evaluations, mean over blocks}."""
    together = np.mean(list(costs.values()), axis=0)
    length = len(together)
    steps, total = best_checkpoints(together, matches)
    listed = {f"found {matches}": total}
    write_schedule(folder / "found.json", f"found {matches}", length, steps, cost=total)
    blocks, parts = {}, []
    for name, own in costs.items():
        blocks[name], part = best_checkpoints(own, matches)
        parts.append(part)
    name, total = f"found {matches} by block", float(np.mean(parts))
    listed[name] = total
    write_schedule(folder / "found_by_block.json", name, length, blocks, cost=total)
    for seed in seeds:
        drawn = random_checkpoints(length, matches, seed)
        name, total = f"random {seed}", cost_of(together, drawn)
        listed[name] = total
        write_schedule(folder / f"random_{seed}.json", name, length, drawn, cost=total)
    for key, checkpoints in catome.PAPER.items():
        listed[key] = cost_of(together, list(checkpoints.steps))
    return listed


def write_costs(path: Path, costs: dict[str, np.ndarray]) -> None:
    """One line a block and pair of evaluations `step` <= `other`."""
    lines: list[dict[str, Any]] = [
        {"block": block, "step": s, "other": t, "cost": matrix[s, t]}
        for block, matrix in costs.items()
        for s in range(len(matrix))
        for t in range(s, len(matrix))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(lines).to_csv(path, index=False)


def plot_costs(costs: dict[str, np.ndarray], listed: dict[str, float], folder: Path) -> None:
    """`reuse_costs`: a matrix a block; `schedule_costs`: what each list costs in all."""
    figure, panels = block_panels(costs, "used at evaluation", "match of evaluation")
    top = max(np.nanquantile(matrix, 0.98) for matrix in costs.values())
    for axes, matrix in zip(panels, costs.values(), strict=True):
        mesh = axes.imshow(matrix, origin="lower", cmap="viridis", vmin=0, vmax=top)
    figure.colorbar(mesh, ax=panels, label="relative error of attention's output", shrink=0.8)
    save(figure, folder, "reuse_costs")
    figure, (axes,) = block_panels([""], "cost of re-use, summed over evaluations", "")
    names = sorted(listed, key=listed.get, reverse=True)
    for y, name in enumerate(names):
        kind = 0 if name.startswith("found") else 2 if name.startswith("random") else 1
        axes.plot(listed[name], y, MARKERS[kind], color=COLOURS[kind])
    axes.set_yticks(range(len(names)), names)
    save(figure, folder, "schedule_costs")
