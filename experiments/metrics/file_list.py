"""A reference set as a text file: which images, and what their bytes were.

# key: value            any number of these first, what made the set; `root` is a folder
<sha256>  <path>        two spaces; relative to `root`, or else to the list's own folder
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FileList:
    """`names` as listed, their `paths` on this disk and their SHA-256."""

    header: dict[str, str]
    names: list[str]
    paths: list[Path]
    sha256: list[str]


def read_file_list(path: Path) -> FileList:
    """Read a list. ValueError names a line that is none or a file that is missing."""
    header: dict[str, str] = {}
    names, hashes = [], []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"is no list of files ({error})") from error
    for number, line in enumerate(lines, 1):
        if line.startswith("#") and not names:
            key, _, value = line[1:].partition(":")
            header[key.strip()] = value.strip()
        elif line.strip():
            sha256, _, name = line.partition("  ")
            if len(sha256) != 64 or set(sha256) - set(string.hexdigits.lower()) or not name:
                raise ValueError(f"line {number} is not `sha256  relative/path`")
            hashes.append(sha256)
            names.append(name)
    root = path.parent / header.get("root", "")
    paths = [root / name for name in names]
    missing = [p for p in paths if not p.is_file()]
    if missing:
        raise ValueError(f"{len(missing)} of its {len(paths)} files are missing: {missing[0]}")
    return FileList(header, names, paths, hashes)
