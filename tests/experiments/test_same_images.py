"""An image depends on its prompt, seed and painter, not on how the work was cut."""

import random

import numpy as np
import pytest
from commands import ROOT
from hydra import compose, initialize_config_dir
from PIL import Image

from experiments.accelerators.build import build_method
from experiments.models import pipelines
from experiments.painting import generate
from experiments.painting.store import ImageStore, Prompt

PROMPTS = [
    Prompt(f"a large {colour} {shape} on a gray background", seed)
    for seed, (colour, shape) in enumerate(
        (c, s) for c in ("red", "green", "blue") for s in ("ring", "cross", "square")
    )
]


@pytest.fixture(scope="module")
def pipe():
    return pipelines.load(settings())


def settings(*overrides):
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        return compose("config", ["generation.steps=3", "device=cpu", *overrides])


def paint(pipe, folder, shares, *overrides):
    """The PNGs' bytes by name after painting the shares one after the other."""
    cfg = settings(*overrides)
    store = ImageStore(folder, {"a": "painter"})
    for share in shares:
        generate.paint(cfg, pipe, build_method(cfg), store, share, "row", of=len(PROMPTS))
    return {path.name: path.read_bytes() for path in folder.rglob("*.png")}


@pytest.mark.parametrize("method", ["none", "ca_tome", "tome"])
def test_the_bytes_do_not_depend_on_shards_order_or_interruption(pipe, tmp_path, method):
    how = [f"method={method}", "generation.batch_size=4"]
    once = paint(pipe, tmp_path / "once", [PROMPTS], *how)
    assert len(once) == len(PROMPTS)
    shards = [PROMPTS[i::4] for i in range(4)]
    assert paint(pipe, tmp_path / "shards", shards, *how) == once
    shuffled = random.Random(0).sample(PROMPTS, len(PROMPTS))
    assert paint(pipe, tmp_path / "shuffled", [shuffled], *how) == once
    assert paint(pipe, tmp_path / "resumed", [PROMPTS[:3], PROMPTS], *how) == once


@pytest.mark.parametrize("method", ["none", "ca_tome", "tome"])
def test_batch_sizes_differ_by_rounding_only(pipe, tmp_path, method, capsys):
    """Merging may take another token where similarities are equal up to rounding: what that makes
    is printed."""
    pictures = []
    for size in (1, 8):
        how = [f"method={method}", f"generation.batch_size={size}"]
        paint(pipe, tmp_path / str(size), [PROMPTS[:8]], *how)
        paths = sorted((tmp_path / str(size)).rglob("*.png"))
        pictures.append(np.stack([np.asarray(Image.open(p), dtype=int) for p in paths]))
    apart = abs(pictures[0] - pictures[1])
    beyond = (apart.max(axis=-1) > 2).mean()
    with capsys.disabled():
        print(f" {method}: batch 1 against 8: at most {apart.max()}/255, {beyond:.2%} above 2/255 ")
    if method == "none":
        assert apart.max() <= 2
    assert beyond < 0.01
