"""Made-up images and true architectures with seeded random weights."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

from experiments.metrics.inception import save_random_inception
from experiments.painting.store import Painted, Prompt
from experiments.toy import networks, scenes


def textured_pictures(count: int, seed: int, contrast: float = 60.0, size: int = 96) -> np.ndarray:
    """(count, size, size, 3) uint8: smooth random colour fields, finer at higher contrast."""
    rng = np.random.default_rng(seed)
    pictures = []
    for _ in range(count):
        coarse = rng.normal(128, contrast, (6, 6, 3)).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)
        noise = rng.normal(0, contrast / 10, (size, size, 3))
        pictures.append((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))
    return np.stack(pictures)


def write_pictures(folder, row: str, pictures, captions=None, seed: int = 0) -> Painted:
    """Write the pictures where a painter of that name keeps them."""
    folder = folder / row
    folder.mkdir(parents=True, exist_ok=True)
    captions = captions or [f"picture {i}" for i in range(len(pictures))]
    prompts = tuple(Prompt(c, seed + i, str(i)) for i, c in enumerate(captions))
    paths = tuple(folder / f"{p.key}.png" for p in prompts)
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(path)
    return Painted(row, f"painter-{row}", prompts, paths)


class Reckless:
    def __reduce__(self):
        return print, ("unpickled",)


@pytest.fixture(scope="session")
def reckless():
    """What a file may hold that must not be unpickled: it prints `unpickled`."""
    return Reckless()


@pytest.fixture(scope="session")
def textured():
    return textured_pictures


@pytest.fixture(scope="session")
def write_row():
    return write_pictures


@pytest.fixture(scope="session")
def photographs():
    """Function that fills a folder with pictures as PNG and returns it."""

    def write(folder, pictures):
        folder.mkdir(parents=True)
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(folder / f"{i:03d}.png")
        return folder

    return write


@pytest.fixture(scope="session")
def inception_weights(tmp_path_factory):
    """Random Inception v3 with BatchNorm calibrated on images, and no standard weights."""
    pictures = np.concatenate([textured_pictures(6, 1), textured_pictures(6, 2, contrast=25)])
    images = torch.from_numpy(pictures).permute(0, 3, 1, 2)
    return save_random_inception(tmp_path_factory.mktemp("inception") / "random.pth", images)


@pytest.fixture(scope="session")
def scorer(tmp_path_factory):
    """The toy scorer's true architecture, untrained, saved as a folder."""
    folder = tmp_path_factory.mktemp("scorer")
    tokenizer = networks.build_tokenizer(folder / "vocabulary")
    torch.manual_seed(0)
    networks.build_scorer(tokenizer).save_pretrained(folder)
    networks.build_image_processor().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def dinov2(tmp_path_factory):
    """A small Dinov2Model with random weights, saved as a folder."""
    folder = tmp_path_factory.mktemp("dinov2")
    torch.manual_seed(0)
    config = Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    Dinov2Model(config).save_pretrained(folder)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 28, "width": 28}}
    BitImageProcessor(**size).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def scene_rows(tmp_path_factory):
    """A baseline of 6 scenes and a row that changed 4 of them."""
    folder = tmp_path_factory.mktemp("scenes")
    drawn = scenes.sample(6, 3, held_out=True)
    captions = [scenes.caption(s) for s in drawn]
    pictures = np.stack([scenes.render(s) for s in drawn])
    changed = pictures.copy()
    changed[:4, 20:90, 30:100] //= 2
    baseline = write_pictures(folder, "baseline", pictures, captions)
    return [baseline, write_pictures(folder, "merged", changed, captions)]
