"""Painted images on disk: where they lie, how they are written, what determines them.

An image is identified by its prompt text, its image seed and its painter (model, scheduler,
steps, guidance, size, dtype, attention backend, method with its source). Images therefore live
under `images/<painter>/<2 hex digits>/<key>.png`, shared by all experiments that need them: a
prompt list is only a manifest over images. Files appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
TEXT_KEY = "catome"
UNFINISHED = 3600  # seconds after which nobody can still be writing a file


@dataclass(frozen=True)
class Prompt:
    """One image to paint. `seed` belongs to the image; `source` is the data set's image id;
    `replicate` counts the repetitions of the whole list with other seeds."""

    text: str
    seed: int
    source: str = ""
    replicate: int = 0

    @property
    def key(self) -> str:
        return digest([self.text, self.seed], 20)


@dataclass(frozen=True)
class Painted:
    """A row's images in manifest order, all of them present."""

    row: str
    painter: str
    prompts: tuple[Prompt, ...]
    images: tuple[Path, ...]


def digest(value: Any, length: int = 16) -> str:
    """Hex digits of the SHA-256 of a JSON value (keys sorted)."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, flush it to the disk, then rename it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


class ImageStore:
    """The images of one painter under `root/images/<painter>`."""

    def __init__(self, root: Path, identity: dict):
        self.identity = identity
        self.painter = digest(identity)
        self.folder = root / "images" / self.painter

    def path(self, prompt: Prompt) -> Path:
        return self.folder / prompt.key[:2] / f"{prompt.key}.png"

    def has(self, prompt: Prompt) -> bool:
        """Whether the image is there and whole: a PNG that lacks its end is not done."""
        return is_whole_png(self.path(prompt))

    def missing(self, prompts: list[Prompt]) -> list[Prompt]:
        """The prompts without an image, each once, in order."""
        return [p for p in dict.fromkeys(prompts) if not self.has(p)]

    def write_identity(self) -> None:
        path = self.folder / "painter.json"
        if not path.exists():
            write_json(path, self.identity)

    def forget_unfinished(self, older_than: float = UNFINISHED) -> None:
        """Delete what killed processes left half-written; younger files may be somebody's."""
        for path in self.folder.glob("*/.*.tmp"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > older_than:
                    path.unlink()

    def write(self, prompt: Prompt, image: Image.Image, record: dict) -> None:
        """Write the PNG with `record` (JSON) beside prompt and seed in its text chunk."""
        info = PngInfo()
        text = {"prompt": prompt.text, "seed": prompt.seed, "painter": self.painter, **record}
        info.add_itxt(TEXT_KEY, json.dumps(text, sort_keys=True))
        write_atomically(
            self.path(prompt), lambda beside: image.save(beside, format="PNG", pnginfo=info)
        )

    def painted(self, row: str, prompts: list[Prompt]) -> Painted:
        return Painted(row, self.painter, tuple(prompts), tuple(self.path(p) for p in prompts))

    def clear(self) -> None:
        """Delete the images (order-dependent rows are repainted whole)."""
        for path in self.folder.glob("*/*.png"):
            path.unlink()


def is_whole_png(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(8) != b"\x89PNG\r\n\x1a\n":
                return False
            file.seek(-len(PNG_END), os.SEEK_END)
            return file.read() == PNG_END
    except OSError:
        return False


def read_record(path: Path) -> dict:
    """What `ImageStore.write` put into an image's text chunk."""
    with Image.open(path) as image:
        image.load()
        return json.loads(image.text[TEXT_KEY])


def differing_keys(one: dict, other: dict, prefix: str = "") -> list[str]:
    """Dotted keys in which two identities differ."""
    keys = []
    for key in sorted({*one, *other}):
        a, b, name = one.get(key), other.get(key), f"{prefix}{key}"
        if isinstance(a, dict) and isinstance(b, dict):
            keys += differing_keys(a, b, f"{name}.")
        elif a != b:
            keys.append(name)
    return keys
