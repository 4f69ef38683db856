"""The paper's experiment on Stable Diffusion v1.5's architecture: everything but its weights.

Real COCO captions and photographs where they are at hand, made ones elsewhere.
"""

import csv
import json

import numpy as np
import pytest
import stable_diffusion
import torch
from commands import run_command
from PIL import Image

from experiments.metrics.inception import save_random_inception
from experiments.toy import scenes


@pytest.fixture(scope="module")
def world(tmp_path_factory, coco_folder):
    """Folders and overrides: model, CLIP, Inception, captions, photographs."""
    folder = tmp_path_factory.mktemp("sd15")
    if coco_folder is not None:
        captions, photographs = coco_folder / "captions_val2017.json", coco_folder / "val2017"
    else:
        captions = scenes.write_coco(scenes.sample(50, 5, held_out=True), folder / "made")
        photographs = folder / "made" / "images"
    pictures = [
        np.asarray(Image.open(p).convert("RGB").resize((128, 128)))
        for p in sorted(photographs.iterdir())[:16]
    ]
    pixels = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    return [
        "benchmark=coco2017_5k",
        f"model.path={stable_diffusion.save_pipeline(folder / 'pipeline')}",
        f"metrics.clip_model={stable_diffusion.save_clip(folder / 'clip')}",
        f"metrics.inception_weights={save_random_inception(folder / 'inception.pth', pixels)}",
        f"metrics.reference={photographs}",
        f"prompts.path={captions}",
        f"results={folder / 'runs'}",
        "prompts.limit=3", "generation.steps=4", "generation.height=128", "generation.width=128",
        "dtype=float32", "timing.repeats=1", "timing.warmup=0",
    ], folder / "runs" / "coco2017_5k"  # fmt: skip


@pytest.fixture(scope="module")
def table_caching(world):
    overrides, folder = world
    done = run_command(
        "+experiment=table_caching", "sweep.thresholds=[0.7]",
        "sweep.lists=[config1,config3,every5]", *overrides,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done, folder / "table_caching"


def test_the_table_has_the_papers_layout(table_caching):
    done, folder = table_caching
    with (folder / "table.csv").open() as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["baseline", "T0.7_config1", "T0.7_config3", "T0.7_every5", "fewer_steps"]
    # Published numbers stand beside ours, never in their place.
    assert "34.05" in done.stdout
    assert "6.09" in done.stdout
    # These are not the standard weights, so that the column may not be called FID.
    assert "FD (Inception " in done.stdout
    assert "rank" in done.stdout  # three images are too few for a distance of 2048 features
    for text in ("config 3", "CLIP score", "PSNR", "SSIM", "fused", "float32"):
        assert text in done.stdout, done.stdout


def test_the_distance_is_real(table_caching):
    _, folder = table_caching
    figures = json.loads((folder / "metrics.json").read_text())["figures"]
    distances = {
        row: next(v for k, v in named.items() if k.startswith("FD (Inception"))
        for row, named in figures.items()
    }
    assert all(value > 0.01 for value in distances.values()), distances


def test_files(table_caching):
    _, folder = table_caching
    latex = (folder / "table.tex").read_text()
    assert "\\toprule" in latex
    assert latex.count("\\begin{tabular}") == latex.count("\\end{tabular}") == 1
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["token_limit"] == 77
    assert len(manifest["prompts"]) == 3
    timing = json.loads((folder / "timing.json").read_text())
    assert timing["rows"]["baseline"]["evaluations"] == 5
    merged = json.loads((folder / "rows" / "T0.7_config3.json").read_text())["merged_share"]
    assert 0 < merged <= 1


@pytest.mark.parametrize("scheduler", ["ddim", "dpm++2m", "euler"])
def test_other_schedulers(world, scheduler):
    overrides, _ = world
    done = run_command(
        "method=ca_tome", f"generation.scheduler={scheduler}", *overrides, "prompts.limit=1",
        "stages=[generate,report]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_imagenet_protocol(world):
    overrides, folder = world
    kept = [o for o in overrides if not o.startswith(("benchmark=", "prompts.path="))]
    done = run_command(
        "+experiment=table_adaptive", "rows=[baseline,T0.7]", *kept,
        "benchmark=sd15_imagenet", "stages=[generate,report]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = folder.parent / "sd15_imagenet" / "table_adaptive"
    prompts = json.loads((table / "manifest.json").read_text())["prompts"]
    assert prompts[0]["text"] == "A high quality photograph of a tench."
    assert "34.3" in done.stdout  # the published FID at 0.7
