"""Painted images on disk: where they lie, how they are written, what determines them.

An image is identified by its prompt text, its image seed and its painter (model, scheduler,
steps, guidance, size, dtype, attention backend, method with its source). Images therefore live
under `images/<painter>/<2 hex digits>/<key>.png`, shared by all experiments that need them: a
prompt list is only a manifest over images. Files appear whole or not at all. Finished ones may be
packed (`experiments.packed`), or left out once their features are kept: then `unkept/<name>.json`
has their records.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from experiments.common.files import digest, read_json, write_atomically, write_bytes, write_json
from experiments.painting.packed import Packs, at_start, write_zip
from experiments.painting.png import BEGIN, END, read_text

TEXT_KEY = "catome"


HEAD = 8192  # bytes of a PNG in which its text usually ends


UNFINISHED = 3600  # seconds after which nobody can still be writing a file


@dataclass(frozen=True, slots=True)
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
    """A row's images in manifest order, all of them present or left out on purpose."""

    row: str
    painter: str
    prompts: tuple[Prompt, ...]
    images: tuple[Path, ...]
    left_out: Mapping[Path, str] = field(default_factory=dict)  # images that are no more: SHA-256


class ImageStore:
    """The images of one painter under `root/images/<painter>`."""

    def __init__(self, root: Path, identity: dict):
        self.identity = identity
        self.painter = digest(identity)
        self.folder = root / "images" / self.painter
        self._name = str(self.folder)
        self._packs = Packs(self.folder)
        self._unkept: dict[str, dict] = {}
        self._unkept_files: set[Path] = set()
        self.refresh()

    def refresh(self) -> None:
        """Look at what other processes packed or left out since."""
        self._packs.refresh()
        files = set((self.folder / "unkept").glob("*.json"))
        for path in files - self._unkept_files:
            self._unkept |= read_json(path)
        self._unkept_files = files

    def path(self, prompt: Prompt) -> Path:
        """Where the image is, or would be."""
        key = prompt.key
        return self._packs.path(key) or self._loose(key)

    def has(self, prompt: Prompt) -> bool:
        """Whether the image is done: there and whole (a PNG that lacks its end is not), or left
        out on purpose."""
        key = prompt.key
        if self._packs.path(key) is not None or key in self._unkept:
            return True
        return is_whole_png(self._loose_name(key))

    def missing(self, prompts: list[Prompt]) -> list[Prompt]:
        """The prompts without an image, each once, in order."""
        self.refresh()
        return [p for p in dict.fromkeys(prompts) if not self.has(p)]

    def record(self, prompt: Prompt) -> dict | None:
        """What `write` was given with the image; None where there is none."""
        key = prompt.key
        if key in self._unkept:
            return self._unkept[key]
        try:
            packed = self._packs.path(key)
            return read_record(packed) if packed else read_loose_record(self._loose_name(key))
        except (OSError, KeyError, ValueError):
            return None

    def records(self, prompts: list[Prompt]) -> Iterator[dict]:
        """`record` of each that has one, in the order in which they lie on the disk."""
        zips, others = self._packs.members((p.key for p in prompts), len(prompts))
        for path, begins in zips:
            with path.open("rb") as file:
                for begin in begins:
                    file.seek(begin)
                    with suppress(KeyError, ValueError):
                        yield json.loads(read_text(file, TEXT_KEY))
        for i in others:
            record = self.record(prompts[i])
            if record is not None:
                yield record

    def write_identity(self) -> None:
        path = self.folder / "painter.json"
        if not path.exists():
            write_json(path, self.identity)

    def forget_unfinished(self, older_than: float = UNFINISHED) -> None:
        """Delete what killed processes left half-written; younger files may be somebody's."""
        for path in (*self.folder.glob("*/.*.tmp"), *self.folder.glob(".*.tmp")):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > older_than:
                    path.unlink()

    def write(self, prompt: Prompt, image: Image.Image, record: dict) -> None:
        """Write the PNG with `record` (JSON) beside prompt and seed in its text chunk."""
        info = PngInfo()
        text = {"prompt": prompt.text, "seed": prompt.seed, "painter": self.painter, **record}
        info.add_itxt(TEXT_KEY, json.dumps(text, sort_keys=True))
        write_atomically(
            self._loose(prompt.key),
            lambda beside: image.save(beside, format="PNG", pnginfo=info),
        )

    def pack(self, prompts: list[Prompt]) -> Path | None:
        """Put the loose ones of these images into one zip; returns it, None if there are none."""
        self.refresh()
        keys = sorted({p.key for p in prompts})
        loose = [self._loose(key) for key in keys if is_whole_png(self._loose(key))]
        fresh = [path for path in loose if self._packs.path(path.stem) is None]
        target = None
        if fresh:
            target = self.folder / f"{digest([path.stem for path in fresh])}.zip"
            write_atomically(target, lambda beside: write_zip(beside, fresh))
            self.refresh()
        for path in loose:  # also of a call that was killed in between
            path.unlink()
        return target

    def leave_out(self, prompts: list[Prompt], hashes: list[str]) -> int:
        """Delete these images, which then count as done; keeps their records and SHA-256, returns
        how many. Whoever calls has kept what is to be known of them."""
        self.refresh()
        records = {}
        for prompt, sha256 in zip(prompts, hashes, strict=True):
            record = None if prompt.key in self._unkept else self.record(prompt)
            if record is not None:
                records[prompt.key] = {**record, "sha256": sha256}
        if records:
            write_json(self.folder / "unkept" / f"{digest(sorted(records))}.json", records)
        gone = {p.key for p in prompts}
        for zipped in {self._packs.path(key).parent for key in gone if self._packs.path(key)}:
            self._unpack(zipped, gone)
        for key in gone:  # also of a call that was killed in between
            self._loose(key).unlink(missing_ok=True)
        self.refresh()
        return len(records)

    def _unpack(self, zipped: Path, gone: set[str]) -> None:
        """Make the images of a zip loose again, but for those that are to go."""
        with zipfile.ZipFile(zipped) as archive:
            for name in archive.namelist():
                key = name.removesuffix(".png")
                if key not in gone:
                    content = archive.read(name)
                    write_bytes(self._loose(key), content)
        zipped.unlink()

    def painted(self, row: str, prompts: list[Prompt]) -> Painted:
        self.refresh()
        unkept = {
            self.path(p): self._unkept[p.key]["sha256"] for p in prompts if p.key in self._unkept
        }
        images = tuple(self.path(p) for p in prompts)
        return Painted(row, self.painter, tuple(prompts), images, unkept)

    def clear(self) -> None:
        """Delete the images (order-dependent rows are repainted whole)."""
        for pattern in ("*/*.png", "*.zip", "unkept/*.json"):
            for path in self.folder.glob(pattern):
                path.unlink()
        self._unkept, self._unkept_files = {}, set()
        self._packs = Packs(self.folder)

    def _loose(self, key: str) -> Path:
        return Path(self._loose_name(key))

    def _loose_name(self, key: str) -> str:
        return f"{self._name}/{key[:2]}/{key}.png"


def is_whole_png(path: Path | str) -> bool:
    """By the fewest calls of the system that tell it, as a scan asks for each image."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        end = os.fstat(descriptor).st_size - len(END)
        whole = os.pread(descriptor, len(BEGIN), 0) == BEGIN
        return whole and end > 0 and os.pread(descriptor, len(END), end) == END
    except OSError:
        return False
    finally:
        os.close(descriptor)


def read_loose_record(name: str) -> dict:
    """`read_record` of an image in no zip, by one read where that is enough."""
    descriptor = os.open(name, os.O_RDONLY)
    try:
        head = os.read(descriptor, HEAD)
    finally:
        os.close(descriptor)
    try:
        return json.loads(read_text(BytesIO(head), TEXT_KEY))
    except ValueError:
        return read_record(Path(name))


def read_record(path: Path) -> dict:
    """What `ImageStore.write` put into an image's text chunk, without decoding the picture.

    Raises:
        OSError: not there.
        ValueError: not a PNG, or damaged.
        KeyError: not one of ours.
    """
    with at_start(path) as file:
        return json.loads(read_text(file, TEXT_KEY))


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
