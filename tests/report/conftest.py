"""Run folders as the stages leave them, with made-up figures."""

import json

import numpy as np
import pytest
from PIL import Image

from experiments.metrics.scores import Scores
from experiments.painting.store import Painted, Prompt

COLUMNS = {
    "fd_toy": ("FD (toy features)", "lower"),
    "clip_toy": ("CLIP (toy)", "higher"),
    "psnr": ("PSNR (dB)", "higher"),
    "ssim": ("SSIM", "higher"),
    "identical": ("identical images", None),
}


def merging(caching, threshold=0.7, interval=None):
    return {
        "method": "CA-ToMe",
        "threshold": threshold,
        "ratio": None,
        "caching": caching,
        "interval": interval,
        "steps": 50,
    }


def plain(method, steps):
    return {
        "method": method,
        "threshold": None,
        "ratio": None,
        "caching": "—",
        "interval": None,
        "steps": steps,
    }


ROWS = {
    "baseline": plain("No merging", 50),
    "T0.7_config3": merging("config 3"),
    "T0.7_every5": merging("every 5", interval=5),
    "fewer_steps": plain("Fewer steps", 40),
}


def write_run(folder, rows=None, captions=("a red ring",), n=None, **experiment):
    """Write a complete folder and return it; `n` overrides the counts behind the figures."""
    rows = ROWS if rows is None else rows
    prompts = [Prompt(text, 7 + i, str(i)) for i, text in enumerate(captions)]
    experiment = {
        "name": "made_up",
        "title": "Made-up figures",
        "benchmark": "toy",
        "layout": "caching",
        "swept": None,
        "published": "table_caching",
        "baseline": "baseline",
        "rows": list(rows),
        "apart": ["fewer_steps"] if "fewer_steps" in rows else [],
        "notes": ["A note of the experiment."],
        "varied": ["method", "generation.steps"],
        "code": {"commit": "0123456789ab", "changed_files": 0},
    } | experiment
    dump(folder / "experiment.json", experiment)
    painted, timings, of_rows = {}, {}, []
    rng = np.random.default_rng(0)
    for j, (name, columns) in enumerate(rows.items()):
        paths = []
        for i in range(len(prompts)):
            path = folder / "images" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(path)
            paths.append(str(path.relative_to(folder)))
        painted[name] = paths
        of_rows.append(Painted(name, name, tuple(prompts), tuple(folder / p for p in paths)))
        seconds = max(0.5, 4.0 - 0.5 * j)
        timings[name] = {
            "s_per_image": seconds,
            "s_per_image_all": [seconds, seconds + 0.1, seconds - 0.1],
            "denoise_s_per_image": seconds - 0.2,
            "s_per_evaluation_match": 0.08,
            "s_per_evaluation_reuse": 0.06,
            "speedup": 4.0 / seconds,
            "speedup_low": 4.0 / seconds - 0.05,
            "speedup_high": 4.0 / seconds + 0.07,
            "speedup_level": 0.75,
            "attention_kernels": ["scaled_dot_product_flash_attention"],
            "peak_memory_gb": 1.5,
            "gflops_per_image": 810.0 - 10 * j,
            "evaluations": 51,
        }
        record = {
            "row": name,
            "status": "done",
            "error": None,
            "columns": columns,
            "images": n or len(prompts),
            "merged_share": 0.43 if columns["threshold"] else None,
            "order_dependent": False,
            "painted_on": {"device": ["A made-up GPU"]},
            "settings": {
                "dtype": "float32",
                "generation.scheduler": "plms",
                "generation.steps": columns["steps"],
            },
        }
        dump(folder / "rows" / f"{name}.json", record)
    listed = [{"text": p.text, "seed": p.seed, "source": p.source} for p in prompts]
    manifest = {"prompts": listed, "rule": {"kind": "toy", "seed": 3}, "truncated": 1}
    dump(folder / "manifest.json", manifest | {"token_limit": 32})
    dump(folder / "painted.json", painted)
    environment = {"device": "A made-up GPU", "device_type": "cuda", "dtype": "float32"}
    environment |= {"attention_backend": "fused", "threads": 2}
    dump(
        folder / "timing.json",
        {"environment": environment, "batch_size": 1, "repeats": 3, "warmup": 1, "rows": timings},
    )
    made_up_scores(of_rows, n or len(prompts)).save(folder)
    return folder


def made_up_scores(of_rows, n):
    scores = Scores.of(of_rows)
    for metric, (column, better) in COLUMNS.items():
        scores.add_column(column, metric, better)
    for j, row in enumerate(of_rows):
        compared = row.row != "baseline"
        scores.add(row.row, "FD (toy features)", 10.5 + j, n)
        scores.add(row.row, "CLIP (toy)", 28.25 - j, n)
        scores.add(row.row, "PSNR (dB)", 25.125 - j if compared else None, n * compared)
        scores.add(row.row, "SSIM", 0.9 - j / 100 if compared else None, n * compared)
        if compared:
            scores.add_beside(row.row, "SSIM", "5th percentile", 0.8 - j / 100)
        scores.add(row.row, "identical images", 0 if compared else n, n)
        # A quarter of a point apart: the rows differ from each other by more than by chance.
        spread = 0.25 * np.arange(len(row.prompts))
        spread -= spread.mean()
        scores.add_per_image(row.row, "clip_toy", 28.25 - j + spread)
        if compared:
            scores.add_per_image(row.row, "psnr", 25.125 - j + spread)
            scores.add_per_image(row.row, "ssim", 0.9 - j / 100 + spread / 100)
    scores.notes.append("Warning: made-up distances are biased.")
    return scores


def dump(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def change(path, **changes):
    dump(path, json.loads(path.read_text(encoding="utf-8")) | changes)


def cells_of(markdown):
    """{first cell: {head: cell}} of a Markdown table, in order."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = split[0]
    assert all(len(cells) == len(heads) for cells in split)
    return [dict(zip(heads, cells, strict=True)) for cells in split[2:]]


@pytest.fixture(scope="session")
def make_run():
    return write_run


@pytest.fixture(scope="session")
def change_json():
    return change


@pytest.fixture(scope="session")
def read_table():
    return cells_of


@pytest.fixture(scope="session")
def merging_columns():
    return merging


@pytest.fixture(scope="session")
def default_rows():
    return ROWS
