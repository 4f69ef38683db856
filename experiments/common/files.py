"""Files that appear whole or not at all, and digests of contents."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

SORTED = json.JSONEncoder(sort_keys=True)  # made once, as images are counted in millions


def digest(value: Any, length: int = 16) -> str:
    """Hex digits of the SHA-256 of a JSON value (keys sorted)."""
    return hashlib.sha256(SORTED.encode(value).encode()).hexdigest()[:length]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, flush it to the disk, then rename it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Processes of several hosts may write at once, and may have the same number.
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda beside: beside.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def file_sha256(path: Path) -> str:
    """Hex digits of a file's SHA-256."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
