"""Procedural captioned scenes: the toy world's data.

A scene is one object, or two in a spatial relation, on a shaded background. `sample` draws
scenes, `render` paints them at 128 x 128 with anti-aliased edges, `caption` says what they
show. The full combination of attributes decides whether a scene is held out of training
(`is_held_out`), so that a test caption describes something the models never saw.

`python -m experiments.toy.scenes out=<folder> count=64 split=held_out` writes image files and
a captions JSON in COCO's format.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.common.files import write_text

SIZE = 128  # pixels, both sides

COLOURS = {
    "red": (214, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 70, 220),
    "yellow": (250, 215, 40),
    "purple": (140, 50, 170),
    "white": (250, 250, 250),
}
BACKGROUNDS = {
    "beige": (222, 196, 156),
    "gray": (128, 128, 128),
    "brown": (104, 70, 42),
    "teal": (42, 128, 128),
    "pink": (236, 160, 186),
}
SHAPES = ("square", "triangle", "ring", "cross")
SIZES = {"small": 0.16, "large": 0.22}  # half extent, as a share of the image's side
RELATIONS = ("left of", "right of", "above", "below")
_OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}


@dataclass(frozen=True)
class Thing:
    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.size} {self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """What a caption says (`first`, `relation`, `second`, `background`) and what it leaves open.

    `centres` holds x, y of each object as shares of the side; `shade` is the background's
    brightness change from its darkest to its lightest edge and `shade_angle` its direction.
    """

    first: Thing
    background: str
    relation: str | None = None
    second: Thing | None = None
    centres: tuple[tuple[float, float], ...] = ((0.5, 0.5),)
    shade: float = 0.2
    shade_angle: float = 0.0

    @property
    def things(self) -> tuple[Thing, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)


def caption(scene: Scene) -> str:
    words = f"a {scene.first}"
    if scene.second is not None:
        words += f" {scene.relation} a {scene.second}"
    return f"{words} on a {scene.background} background"


def combination(scene: Scene) -> str:
    """The attributes in an order that does not depend on how the caption puts the relation."""
    if scene.relation in ("right of", "below"):
        scene = replace(
            scene,
            first=scene.second,
            second=scene.first,
            relation=_OPPOSITE[scene.relation],
            centres=scene.centres[::-1],
        )
    return caption(scene)


def is_held_out(scene: Scene) -> bool:
    """One combination in eight is never shown in training."""
    return hashlib.sha256(combination(scene).encode()).digest()[0] % 8 == 0


def rebound(scene: Scene, shapes_only: bool) -> Scene | None:
    """The scene with its two objects, or only their shapes, in exchange: the same words, bound
    otherwise. None for a scene of one object and where the exchange would be held out or change
    nothing."""
    if scene.second is None:
        return None
    first, second = scene.second, scene.first
    if shapes_only:
        first = replace(scene.first, shape=scene.second.shape)
        second = replace(scene.second, shape=scene.first.shape)
    twin = replace(scene, first=first, second=second)
    return None if twin == scene or is_held_out(twin) else twin


def _draw(rng: np.random.Generator) -> Scene:
    def thing(not_colour: str | None = None) -> Thing:
        colours = [c for c in COLOURS if c != not_colour]
        return Thing(
            str(rng.choice(list(SIZES))), str(rng.choice(colours)), str(rng.choice(SHAPES))
        )

    first, background = thing(), str(rng.choice(list(BACKGROUNDS)))
    shade, angle = float(rng.uniform(0.1, 0.3)), float(rng.uniform(0, 2 * np.pi))
    if rng.random() < 0.3:
        centre = tuple(float(v) for v in rng.uniform(0.47, 0.53, 2))
        return Scene(first, background, centres=(centre,), shade=shade, shade_angle=angle)
    relation = str(rng.choice(RELATIONS))
    near, far = rng.uniform(0.24, 0.28), rng.uniform(0.72, 0.76)
    across = rng.uniform(0.42, 0.58, 2)
    one, two = (near, far) if relation in ("left of", "above") else (far, near)
    if relation in ("left of", "right of"):
        centres = ((one, across[0]), (two, across[1]))
    else:
        centres = ((across[0], one), (across[1], two))
    centres = tuple((float(x), float(y)) for x, y in centres)
    return Scene(first, background, relation, thing(first.colour), centres, shade, angle)


def sample(count: int, seed: int, held_out: bool) -> list[Scene]:
    """`count` scenes of one split, a function of the seed alone."""
    rng = np.random.default_rng([seed, int(held_out)])
    scenes: list[Scene] = []
    while len(scenes) < count:
        scene = _draw(rng)
        if is_held_out(scene) == held_out:
            scenes.append(scene)
    return scenes


_GRID = (np.arange(SIZE, dtype=np.float32) + 0.5) / SIZE


def _distance(shape: str, x: np.ndarray, y: np.ndarray, half: float) -> np.ndarray:
    """Signed distance to the outline, negative inside; x, y relative to the centre."""
    if shape == "ring":
        return np.abs(np.hypot(x, y) - 0.72 * half) - 0.28 * half
    if shape == "square":
        return np.maximum(np.abs(x), np.abs(y)) - 0.88 * half
    if shape == "cross":
        bar = 0.32 * half
        upright = np.maximum(np.abs(x) - bar, np.abs(y) - half)
        return np.minimum(upright, np.maximum(np.abs(x) - half, np.abs(y) - bar))
    # An upright triangle: base at +half, apex at -half.
    slope = np.hypot(2.0, 1.0)
    return np.maximum(y - 0.9 * half, (2 * np.abs(x) - (y + half)) / slope)


def render(scene: Scene) -> np.ndarray:
    """(128, 128, 3) uint8 RGB."""
    x, y = _GRID[None, :], _GRID[:, None]
    along = (x - 0.5) * np.cos(scene.shade_angle) + (y - 0.5) * np.sin(scene.shade_angle)
    light = 1 + scene.shade * along
    image = light[..., None] * np.float32(BACKGROUNDS[scene.background])
    for thing, (cx, cy) in zip(scene.things, scene.centres, strict=True):
        edge = _distance(thing.shape, x - cx, y - cy, SIZES[thing.size])
        cover = np.clip(0.5 - edge * SIZE, 0, 1)[..., None]
        image = image * (1 - cover) + cover * np.float32(COLOURS[thing.colour])
    return np.clip(image + 0.5, 0, 255).astype(np.uint8)


def write_coco(scenes: list[Scene], folder: Path) -> Path:
    """Write PNGs to `folder/images` and a COCO-format `folder/captions.json`; returns the JSON."""
    from PIL import Image

    (folder / "images").mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for i, scene in enumerate(scenes):
        name = f"{i:012d}.png"
        Image.fromarray(render(scene)).save(folder / "images" / name)
        images.append({"id": i, "file_name": name, "width": SIZE, "height": SIZE})
        annotations.append({"id": i, "image_id": i, "caption": caption(scene)})
    path = folder / "captions.json"
    text = json.dumps({"images": images, "annotations": annotations}, indent=1)
    write_text(path, text)  # last, and whole: it says that all images are there
    return path


if __name__ == "__main__":
    from omegaconf import OmegaConf

    args = OmegaConf.merge(
        {"out": "???", "count": 64, "seed": 0, "split": "held_out"}, OmegaConf.from_cli()
    )
    print(write_coco(sample(args.count, args.seed, args.split == "held_out"), Path(args.out)))
