"""Where photographs come from: a folder, a tar or a zip, read in place and never unpacked."""

from __future__ import annotations

import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
# NotImplementedError: a compression that zipfile lacks; RuntimeError: an encrypted archive.
BROKEN = (
    tarfile.TarError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError,
    zipfile.BadZipFile, NotImplementedError, RuntimeError,
)  # fmt: skip


class PrepareError(ValueError):
    """A setting or a source that cannot be; its message names it and says what is allowed."""


def bad(key: str, value: Any, allowed: str) -> PrepareError:
    return PrepareError(f"{key}={'null' if value is None else value}: {allowed}")


@dataclass(frozen=True)
class Source:
    """Files by name.

    Attributes:
        name: of the folder or archive.
        sizes: {relative POSIX name: bytes}, in the order in which reading is cheapest.
        read: gives a file's content.
    """

    name: str
    sizes: dict[str, int]
    read: Callable[[str], bytes]

    def images(self) -> list[str]:
        """Names of the visible images, in order of path."""
        paths = [PurePosixPath(name) for name in self.sizes]
        visible = (p for p in paths if not any(q[0] == "." or q == "__MACOSX" for q in p.parts))
        found = (p for p in visible if p.suffix.lower() in SUFFIXES)
        return [p.as_posix() for p in sorted(found, key=lambda p: p.parts)]

    def find(self, ending: str) -> str | None:
        """The one file whose path ends in `ending`, whole path components compared."""
        parts = PurePosixPath(ending).parts
        found = [n for n in self.sizes if PurePosixPath(n).parts[-len(parts) :] == parts]
        return found[0] if len(found) == 1 else None


@contextmanager
def open_source(key: str, path: Any) -> Iterator[Source]:
    """The files of a folder (two levels deep) or of an archive.

    Args:
        key: the command's key that named it, for errors.
        path: a folder, a tar (compressed or not) or a zip.

    Raises:
        PrepareError: there is no such file, it is no archive, or a member's name leaves it.
    """
    if path is None:
        raise bad(key, path, "must be given: a folder, a tar or a zip")
    path = Path(str(path)).expanduser()
    if not path.exists():
        raise bad(key, path, "no such folder or file")
    if path.is_dir():
        yield _folder(path)
        return
    is_tar = tarfile.is_tarfile(path)
    if not is_tar and not zipfile.is_zipfile(path):
        raise bad(key, path, "must be a folder, a tar or a zip")
    with _whole(key, path):
        archive = tarfile.open(path) if is_tar else zipfile.ZipFile(path)  # noqa: SIM115
    with archive:
        with _whole(key, path):
            listed = _tar(key, path, archive) if is_tar else _zip(key, path, archive)

        def read(name: str) -> bytes:
            with _whole(key, path):
                return listed.read(name)

        yield Source(listed.name, listed.sizes, read)


@contextmanager
def _whole(key: str, path: Path) -> Iterator[None]:
    """What an archive's libraries raise where it is cut off or damaged, in one sentence."""
    try:
        yield
    except BROKEN as error:
        raise bad(key, path, f"cannot be read to its end ({error})") from error


def _folder(root: Path) -> Source:
    # Links are followed here: class folders are often links into a shared data set.
    first = sorted(root.iterdir())
    files = first + [p for folder in first if folder.is_dir() for p in sorted(folder.iterdir())]
    files = [p for p in files if p.is_file()]
    sizes = {p.relative_to(root).as_posix(): p.stat().st_size for p in files}
    return Source(root.name, sizes, lambda name: (root / name).read_bytes())


def _tar(key: str, path: Path, archive: tarfile.TarFile) -> Source:
    members = {}
    for member in archive:
        name = _inside(key, path, member.name)
        if not member.isfile() and not member.isdir():
            raise bad(key, path, f"holds {name}, a link or a device; only files are allowed")
        if member.isfile():
            _once(key, path, name, members)
            members[name] = member
    sizes = {name: member.size for name, member in members.items()}
    return Source(path.name, sizes, lambda name: archive.extractfile(members[name]).read())


def _zip(key: str, path: Path, archive: zipfile.ZipFile) -> Source:
    members = {}
    for member in archive.infolist():
        name = _inside(key, path, member.filename)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise bad(key, path, f"holds {name}, a link; only files are allowed")
        if not member.is_dir():
            _once(key, path, name, members)
            members[name] = member
    sizes = {name: member.file_size for name, member in members.items()}
    return Source(path.name, sizes, lambda name: archive.read(members[name]))


def _inside(key: str, path: Path, name: str) -> str:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or (parts and parts[0].endswith(":")):
        raise bad(key, path, f"holds {name}, a name that leaves the archive's folder")
    return PurePosixPath(*parts).as_posix()


def _once(key: str, path: Path, name: str, known: dict) -> None:
    if name in known:
        raise bad(key, path, f"holds {name} twice")
