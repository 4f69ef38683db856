"""Where things lie: the checkout, and paths relative to it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def find(path: str | Path) -> Path | None:
    """`path` from the working directory or else from the checkout, if it exists."""
    for candidate in (Path(path).expanduser(), ROOT / path):
        if candidate.exists():
            return candidate
    return None


def locate(path: str) -> str:
    """`find`, and a path that does not exist as it was given."""
    return str(find(path) or path)
