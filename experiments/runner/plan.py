"""What an experiment would take, before anything is painted or measured.

`plan=power`: how many prompts a wanted difference needs, from the spread in a finished pilot.

    python run.py +experiment=ablation_cache prompts.limit=64
    python run.py +experiment=ablation_cache plan=power power.difference.clip_toy=0.2

Rows are compared with the baseline where it has the metric itself, else (PSNR, SSIM and LPIPS,
which compare with the baseline) with the first other row.

`plan=cost`: rows, images there and missing, GPU-hours, GB and files.
"""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf
from tabulate import tabulate

from experiments.accelerators.build import build_method
from experiments.common.errors import bad
from experiments.common.files import read_json
from experiments.common.uncertainty import images_needed, pairs
from experiments.metrics.scores import Scores
from experiments.models.schedulers import scheduler
from experiments.painting.identity import painter_identity
from experiments.painting.packed import container
from experiments.painting.prompts import load as load_prompts
from experiments.painting.store import ImageStore, Prompt
from experiments.settings.folders import results_root, run_folder

COST_HEADS = ("row", "images", "there", "missing", "s/im", "GPU-hours", "GB", "files")
BYTES_A_PIXEL = 1.5  # of a PNG photograph
HEADS = ("row", "against", "metric", "prompts", "spread", "difference", "needed")


def power(cfg: DictConfig, rows: dict[str, DictConfig]) -> str:
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


def cost(cfg: DictConfig, rows: dict[str, DictConfig]) -> str:
    """A Markdown table with a line of sums, and where its numbers come from.

    Seconds an image are those of the run's own `timing.json`, else the benchmark's guess, which
    the table says; bytes are those of images that are there, else 1.5 a pixel.
    """
    measured = {}
    if (run_folder(cfg) / "timing.json").is_file():
        measured = read_json(run_folder(cfg) / "timing.json")["rows"]
    guess, lines = cfg.benchmark.guess, []
    told = {"measured here": False, f"guessed: {guess.source}": False}
    known, guessed = told
    lists: dict[tuple[str, int, int], list[Prompt]] = {}
    for name, row in rows.items():
        key = (OmegaConf.to_yaml(row.prompts), row.seed, row.replicates)
        if key not in lists:
            data = results_root(row) / "data"
            lists[key], _ = load_prompts(row.prompts, row.seed, data, row.replicates)
        chosen = lists[key]
        identity = painter_identity(row, scheduler(row), build_method(row))
        store = ImageStore(results_root(row), identity)
        missing = len(store.missing(chosen))
        files = {container(store.path(p)) for p in chosen}
        here = [path.stat().st_size for path in files if path.is_file()]
        seconds = measured.get(name, {}).get("s_per_image")
        told[known if seconds is not None else guessed] = True
        seconds = guess.seconds if seconds is None else seconds
        each = BYTES_A_PIXEL * row.generation.width * row.generation.height
        if here and len(chosen) > missing:
            each = sum(here) / (len(chosen) - missing)
        # One zip a share in place of a file an image.
        count = row.generation.shards if row.store == "zip" else len(chosen)
        lines.append([name, len(chosen), len(chosen) - missing, missing, seconds,
                      missing * seconds / 3600, len(chosen) * each / 1e9, count])  # fmt: skip
    whole = [sum(line[i] for line in lines) for i in (1, 2, 3, 5, 6, 7)]
    lines.append(["all", *whole[:3], None, *whole[3:]])
    table = tabulate(lines, headers=COST_HEADS, tablefmt="pipe", floatfmt=".3g", missingval="")
    said = " and ".join(text for text, used in told.items() if used)
    return (
        f"{table}\n\nSeconds an image: {said}. GPU-hours are of painting what is missing; metrics "
        "and timing come on top."
    )


PLANS = {"power": power, "cost": cost}
