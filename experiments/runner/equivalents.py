"""Steps-equivalent: what the baseline with fewer steps makes of the time that a row takes.

After the rows were timed, the baseline is painted with as many PLMS and DPM++ steps as take each
row's measured time, at the same prompts and seeds; the table then says whether the row is better,
worse, or not told from it by the paired interval.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.common.files import read_json
from experiments.models.evaluations import evaluations_of

SCHEDULERS = ("plms", "dpm++2m")


def equal_steps(baseline: dict[str, Any], seconds: float, scheduler: str, most: int) -> int:
    """Steps of the baseline that come closest to `seconds` an image, 1 to `most`.

    Args:
        baseline: its figures in `timing.json`; what is not evaluations, such as decoding, is
            taken to cost the same at every number of steps.
    """
    evaluation = baseline["s_per_evaluation"] / baseline["batch_size"]
    rest = baseline["s_per_image"] - baseline["evaluations"] * evaluation
    return min(
        range(1, most + 1),
        key=lambda steps: abs(rest + evaluations_of(scheduler, steps) * evaluation - seconds),
    )


def equivalents_of(
    cfg: DictConfig, rows: dict[str, DictConfig], folder: Path
) -> tuple[dict[str, dict[str, dict[str, Any]]], dict[str, DictConfig]]:
    """Which painting each row is to be compared with, and those paintings' configurations.

    Args:
        cfg: of the experiment.
        rows: {name: the row's own configuration}.
        folder: of the run, with `timing.json`; without it there are none.

    Returns:
        {row: {scheduler: {"row": name, "steps": n}}} and {name: configuration}. A name may be
        the baseline's own, where that takes no more time than the row.
    """
    name = cfg.experiment.baseline
    if name not in rows or not (folder / "timing.json").is_file():
        return {}, {}
    figures = read_json(folder / "timing.json")["rows"]
    plain = rows[name].generation
    if "s_per_image" not in figures.get(name, {}):
        return {}, {}
    compared, paintings = {}, {}
    for row, own in rows.items():
        seconds = figures.get(row, {}).get("s_per_image")
        if row == name or row in cfg.experiment.apart or own.against or seconds is None:
            continue
        compared[row] = {}
        for scheduler in SCHEDULERS:
            steps = equal_steps(figures[name], seconds, scheduler, plain.steps)
            same = (scheduler, steps) == (plain.scheduler, plain.steps)
            label = name if same else f"equal_{scheduler}_{steps}"
            compared[row][scheduler] = {"row": label, "steps": steps}
            if not same:
                paintings[label] = painting(rows[name], label, scheduler, steps, cfg.replicates)
    return compared, paintings


def painting(
    baseline: DictConfig, label: str, scheduler: str, steps: int, replicates: int
) -> DictConfig:
    changed = {
        "row": label,
        "replicates": replicates,
        "generation": {"scheduler": scheduler, "steps": steps},
    }
    return OmegaConf.merge(baseline, changed)
