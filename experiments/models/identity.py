"""What tells one set of weights from another."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from experiments.common.files import digest, file_sha256


def model_identity(path: str, revision: str | None) -> dict[str, Any]:
    """What tells one set of weights from another: a folder's content, a hub's name and revision."""
    if Path(path).is_dir():
        return {"content": folder_digest(Path(path))}
    return {"hub": path, "revision": revision or "main"}


def folder_digest(folder: Path) -> str:
    """Digest of the names and contents of a folder's files."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and ".cache" not in f.parts)
    return digest([[str(f.relative_to(folder)), _file_digest(f, f.stat().st_mtime_ns)]
                   for f in files])  # fmt: skip


@cache
def _file_digest(path: Path, modified: int) -> str:
    return file_sha256(path)
