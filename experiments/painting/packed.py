"""Finished images packed in uncompressed zips, for file systems that count files.

A zip lies in the painter's folder beside the loose images. It appears whole and is never changed;
`<zip>/<key>.png` is then the path of an image, which `opened`, `at_start` and `container`
understand. What is known of a zip is kept in arrays: there may be millions of images.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from experiments.painting.png import is_whole

KEY = 20  # characters of an image's key
HEADER, LENGTHS = 30, struct.Struct("<26xHH")  # of a zip member, without its name and extra field


class Index(NamedTuple):
    """The whole images of a zip: keys (sorted), position of the first byte, length in bytes."""

    keys: np.ndarray
    begins: np.ndarray
    sizes: np.ndarray


class Packs:
    """The images in the zips of a folder, by key."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._forget()

    def _forget(self) -> None:
        self._zips: list[Path] = []
        self._keys = np.array([], f"S{KEY}")
        self._where = np.array([], np.int32)  # positions in _zips
        self._begins = np.array([], np.int64)

    def refresh(self) -> None:
        """Look for zips that others have added or removed since."""
        if set(self._zips) - (found := set(self.folder.glob("*.zip"))):
            self._forget()
        fresh = sorted(found - set(self._zips))
        if not fresh:
            return
        added = [index_of(path) for path in fresh]
        where = [np.full(len(a.keys), len(self._zips) + i, np.int32) for i, a in enumerate(added)]
        keys = np.concatenate([self._keys, *(a.keys for a in added)])
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._where = np.concatenate([self._where, *where])[order]
        self._begins = np.concatenate([self._begins, *(a.begins for a in added)])[order]
        self._zips += fresh

    def path(self, key: str) -> Path | None:
        """Of an image that is there and whole."""
        position = position_of(self._keys, key)
        return None if position is None else self._zips[self._where[position]] / f"{key}.png"

    def members(
        self, keys: Iterable[str], count: int
    ) -> tuple[list[tuple[Path, list[int]]], np.ndarray]:
        """Where many images are, as they lie on the disk.

        Args:
            count: of the keys.

        Returns:
            Each zip with the first bytes of its images in rising order, and the positions in `keys`
            of the images that no zip has whole.
        """
        if not len(self._keys):
            return [], np.arange(count)
        wanted = np.fromiter((key.encode() for key in keys), f"S{KEY}", count)
        at = np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)
        present = self._keys[at] == wanted
        others = np.flatnonzero(~present)
        if not present.any():
            return [], others
        at = at[present]
        at = at[np.lexsort((self._begins[at], self._where[at]))]
        zips, firsts = np.unique(self._where[at], return_index=True)
        begins = np.split(self._begins[at], firsts[1:])
        return [(self._zips[own], b.tolist()) for own, b in zip(zips, begins, strict=True)], others


def position_of(keys: np.ndarray, key: str) -> int | None:
    if not len(keys):
        return None
    wanted = key.encode()
    position = int(np.searchsorted(keys, wanted))
    return position if position < len(keys) and keys[position] == wanted else None


def write_zip(path: Path, images: list[Path]) -> None:
    """All of the files under their names, as they are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for image in images:
            archive.write(image, image.name)


def index_of(path: Path) -> Index:
    """Of the PNGs in a zip that have their end; empty for a zip that cannot be read."""
    try:
        return _index(path, path.stat().st_mtime_ns)
    except OSError:
        return _index_of([])


@lru_cache(maxsize=4096)
def _index(path: Path, changed: int) -> Index:
    found = []
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for member in archive.infolist():
                file.seek(member.header_offset)
                name, extra = LENGTHS.unpack(file.read(HEADER))
                begin = member.header_offset + HEADER + name + extra
                file.seek(begin)
                key = member.filename.removesuffix(".png").encode()
                if len(key) == KEY and is_whole(file, member.file_size):
                    found.append((key, begin, member.file_size))
    except (OSError, zipfile.BadZipFile, struct.error):
        pass
    return _index_of(sorted(found))


def _index_of(found: list[tuple[bytes, int, int]]) -> Index:
    keys, begins, sizes = zip(*found, strict=True) if found else ((), (), ())
    return Index(np.array(keys, f"S{KEY}"), np.array(begins, np.int64), np.array(sizes, np.int64))


def opened(path: Path) -> BinaryIO:
    """An image file, loose or packed, opened for reading.

    Raises:
        OSError: it is not there.
    """
    if not is_packed(path):
        return path.open("rb")
    with at_start(path) as file:
        index = index_of(path.parent)
        return BytesIO(file.read(index.sizes[position_of(index.keys, path.stem)]))


def at_start(path: Path) -> BinaryIO:
    """The file that holds an image, at the image's first byte: to read no more than is needed.

    Raises:
        OSError: it is not there.
    """
    if not is_packed(path):
        return path.open("rb")
    index = index_of(path.parent)
    position = position_of(index.keys, path.stem)
    if position is None:
        raise FileNotFoundError(2, "not in the zip, or not whole", str(path))
    file = path.parent.open("rb")
    file.seek(index.begins[position])
    return file


def container(path: Path) -> Path:
    """The file that holds an image: itself or its zip."""
    return path.parent if is_packed(path) else path


def loose(path: Path) -> Path:
    """Where an image lies as long as it is not packed."""
    return path.parent.parent / path.name[:2] / path.name if is_packed(path) else path


def is_packed(path: Path) -> bool:
    return path.parent.suffix == ".zip"
