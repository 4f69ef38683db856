"""Finished images packed in uncompressed zips, for file systems that count files.

A zip lies in the painter's folder beside the loose images. It appears whole and is never changed;
`<zip>/<key>.png` is then the path of an image, which `opened` and `container` understand.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

PNG_BEGIN = b"\x89PNG\r\n\x1a\n"
PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
HEADER, LENGTHS = 30, struct.Struct("<26xHH")  # of a zip member, without its name and extra field


class Packs:
    """The images in the zips of a folder, by key."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._zips: list[Path] = []
        self._where: dict[str, int] = {}  # position in _zips

    def refresh(self) -> None:
        """Look for zips that others have added since."""
        if set(self._zips) - (found := set(self.folder.glob("*.zip"))):
            self._zips, self._where = [], {}
        for path in sorted(found - set(self._zips)):
            for key in whole_members(path):
                self._where[key] = len(self._zips)
            self._zips.append(path)

    def path(self, key: str) -> Path | None:
        """Of an image that is there and whole."""
        position = self._where.get(key)
        return None if position is None else self._zips[position] / f"{key}.png"


def write_zip(path: Path, images: list[Path]) -> None:
    """All of the files under their names, as they are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for image in images:
            archive.write(image, image.name)


def whole_members(path: Path) -> Iterator[str]:
    """Keys of the PNGs in a zip that have their end; none of a zip that cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for member in archive.infolist():
                file.seek(member.header_offset)
                name, extra = LENGTHS.unpack(file.read(HEADER))
                file.seek(member.header_offset + HEADER + name + extra)
                if is_whole(file, member.file_size):
                    yield member.filename.removesuffix(".png")
    except (OSError, zipfile.BadZipFile, struct.error):
        return


def is_whole(file: BinaryIO, size: int) -> bool:
    """Whether a PNG of `size` bytes begins here and has its end."""
    begin = file.read(len(PNG_BEGIN))
    file.seek(size - len(PNG_BEGIN) - len(PNG_END), os.SEEK_CUR)
    return begin == PNG_BEGIN and file.read(len(PNG_END)) == PNG_END


def opened(path: Path) -> BinaryIO:
    """An image file, loose or packed, opened for reading.

    Raises:
        OSError: it is not there.
    """
    if not is_packed(path):
        return path.open("rb")
    status = path.parent.stat()
    try:
        return BytesIO(_archive(path.parent, status.st_mtime_ns, os.getpid()).read(path.name))
    except (KeyError, zipfile.BadZipFile) as error:
        raise FileNotFoundError(2, f"not in the zip ({error})", str(path)) from error


def container(path: Path) -> Path:
    """The file that holds an image: itself or its zip."""
    return path.parent if is_packed(path) else path


def loose(path: Path) -> Path:
    """Where an image lies as long as it is not packed."""
    return path.parent.parent / path.name[:2] / path.name if is_packed(path) else path


def is_packed(path: Path) -> bool:
    return path.parent.suffix == ".zip"


@lru_cache(maxsize=4)
def _archive(path: Path, changed: int, process: int) -> zipfile.ZipFile:
    """Kept open, as its list is long; a forked worker must not share the position in the file."""
    return zipfile.ZipFile(path)
