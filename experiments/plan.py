"""`plan=power`: how many prompts a wanted difference needs, from the spread in a finished pilot.

    python run.py +experiment=ablation_cache prompts.limit=64
    python run.py +experiment=ablation_cache plan=power power.difference.clip_toy=0.2

Paints and measures nothing. Rows are compared with the baseline where it has the metric itself,
else (PSNR, SSIM and LPIPS, which compare with the baseline) with the first other row.
"""

from __future__ import annotations

from omegaconf import DictConfig
from tabulate import tabulate

from experiments.config import bad, run_folder
from experiments.evaluate import Scores
from experiments.uncertainty import images_needed, pairs

HEADS = ("row", "against", "metric", "prompts", "spread", "difference", "needed")


def power(cfg: DictConfig, rows: list[str]) -> str:
    """A Markdown table; ConfigError where no pilot was evaluated."""
    folder = run_folder(cfg)
    if not (folder / "metrics.json").is_file():
        raise bad("plan", cfg.plan, f"needs a finished pilot in {folder}; run it without plan=")
    scores, lines = Scores.load(folder), []
    measured = scores.per_image
    found = [row for row in rows if row in set(measured["row"])]
    for metric, wanted in cfg.power.difference.items():
        if metric not in measured:
            continue
        having = [r for r in found if measured.loc[measured["row"] == r, metric].notna().sum() > 1]
        for row in having[1:]:
            differences = pairs(measured, metric, row, having[0])
            if len(differences) < 2:
                continue
            spread = float(differences.std())
            needed = images_needed(spread, wanted, cfg.power.probability)
            lines.append((row, having[0], metric, len(differences), spread, wanted, needed))
    if not lines:
        raise bad("plan", cfg.plan, f"the pilot in {folder} holds no two rows to compare")
    return tabulate(lines, headers=HEADS, tablefmt="pipe", floatfmt=".3g")
