"""SHA-256 of image files, known again by size and time of change without reading them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tqdm import tqdm

from experiments.common.files import read_json, write_json
from experiments.painting.packed import container, opened


def text_key(*texts: str) -> str:
    """A key of the same form for what is no file."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def image_sha256(path: Path) -> str:
    """Hex digits of the SHA-256 of an image file, loose or packed."""
    with opened(Path(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(
    names: Sequence[str],
    paths: Sequence[Path],
    index: Path,
    notes: list[str],
    label: str,
    left_out: Mapping[Path, str] = MappingProxyType({}),
) -> tuple[list[str], int]:
    """The files' hashes, and how many files have another content than when last asked for.

    Args:
        names: of the files, under which `index` knows them.
        index: JSON file {name: "size mtime_ns sha256"}, brought up to date.
        notes: gets a sentence if the index was unreadable.
        label: of the progress bar.
        left_out: the hashes of files that are no more.

    Raises:
        FileNotFoundError: a file is missing; `filename` says which.
    """
    known, changed, fresh = _read(index, notes), 0, False
    try:
        for name, path in zip(tqdm(names, desc=label, unit="im", leave=False), paths, strict=True):
            size, time, sha256 = known.get(name, ("", "", ""))
            if path in left_out:
                fresh |= sha256 != left_out[path]
                known[name] = ("0", "0", left_out[path])
                continue
            status = container(path).stat()
            if (size, time) != (str(status.st_size), str(status.st_mtime_ns)):
                found = image_sha256(path)
                changed += sha256 not in ("", found)
                known[name] = (str(status.st_size), str(status.st_mtime_ns), found)
                fresh = True
    finally:
        if fresh:
            write_json(index, {name: " ".join(entry) for name, entry in known.items()})
    return [known[name][2] for name in names], changed


def known_hashes(names: Sequence[str], index: Path) -> list[str] | None:
    """The hashes as last asked for, without looking at the files; None if one is unknown."""
    known = _read(index, [])
    return [known[name][2] for name in names] if all(name in known for name in names) else None


def _read(index: Path, notes: list[str]) -> dict[str, tuple[str, ...]]:
    try:
        known = {name: tuple(entry.split(" ")) for name, entry in read_json(index).items()}
        if any(len(entry) != 3 for entry in known.values()):
            raise ValueError("not three words")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError):
        notes.append(f"The index of file hashes {index.name} was unreadable and was rebuilt.")
        return {}
    return known
