"""Features computed once and kept: one npz for each model of features and set of images.

A file holds `keys`, `stamps` and `features`. Asking for keys of which some are new computes only
those; a key whose stamp (size and time of its file) changed is computed again.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments.store import write_atomically

SAVE_EVERY = 60.0  # seconds; what an interruption can cost


def cached_features(
    path: Path,
    keys: Sequence[str],
    stamps: Sequence[str],
    compute: Callable[[list[int]], Iterator[np.ndarray]],
    notes: list[str],
    label: str,
) -> np.ndarray:
    """Features of `keys` in their order, from the file and from `compute` for what it lacks.

    Args:
        path: the npz; written atomically, at the end and about once a minute on the way.
        keys: n names; a repeated one is computed once.
        stamps: n texts that change when the content behind the key does.
        compute: takes positions in `keys` and yields arrays (batch, d) for them, in that order.
        notes: gets a sentence if the file was unreadable and is rebuilt.
        label: of the progress bar.

    Returns:
        (n, d) float32.
    """
    known = _read(path, notes)
    first = {}
    for i, key in enumerate(keys):
        first.setdefault(key, i)
    todo = [
        i
        for key, i in first.items()
        if key not in known["position"] or known["stamps"][known["position"][key]] != stamps[i]
    ]
    if todo:
        known = _extend(path, known, keys, stamps, todo, compute, label)
    if not keys:
        return np.zeros((0, 0), np.float32)
    return known["features"][[known["position"][key] for key in keys]]


def _extend(path, known, keys, stamps, todo, compute, label) -> dict:
    fresh: list[np.ndarray] = []
    done, saved_at = 0, time.monotonic()

    def merged() -> dict:
        new = todo[:done]
        replaced = {keys[i] for i in new}
        kept = [p for key, p in known["position"].items() if key not in replaced]
        parts = ([known["features"][kept]] if kept else []) + fresh
        return _index(
            [known["keys"][p] for p in kept] + [keys[i] for i in new],
            [known["stamps"][p] for p in kept] + [stamps[i] for i in new],
            np.concatenate(parts).astype(np.float32),
        )

    try:
        with tqdm(total=len(todo), desc=label, unit="im", leave=False) as bar:
            for batch in compute(todo):
                fresh.append(np.asarray(batch, np.float32))
                done += len(batch)
                bar.update(len(batch))
                if time.monotonic() - saved_at > SAVE_EVERY:
                    _write(path, merged())
                    saved_at = time.monotonic()
    finally:
        if done:
            _write(path, merged())
    if done != len(todo):
        raise RuntimeError(f"{label}: {done} features for {len(todo)} images")
    return merged()


def _index(keys: list[str], stamps: list[str], features: np.ndarray) -> dict:
    position = {key: i for i, key in enumerate(keys)}
    return {"keys": keys, "stamps": stamps, "features": features, "position": position}


def _read(path: Path, notes: list[str]) -> dict:
    empty = _index([], [], np.zeros((0, 0), np.float32))
    try:
        with np.load(path, allow_pickle=False) as file:
            keys, stamps = file["keys"].tolist(), file["stamps"].tolist()
            features = file["features"]
        if not len(keys) == len(stamps) == len(features) or features.ndim != 2:
            raise ValueError("lengths differ")
    except FileNotFoundError:
        return empty
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        notes.append(f"The feature cache {path.name} was unreadable and was rebuilt.")
        return empty
    return _index(keys, stamps, features)


def _write(path: Path, known: dict) -> None:
    def write(beside: Path) -> None:
        with beside.open("wb") as file:  # np.savez appends .npz to a path, not to an open file
            np.savez(
                file,
                keys=np.array(known["keys"], dtype=np.str_),
                stamps=np.array(known["stamps"], dtype=np.str_),
                features=known["features"],
            )

    write_atomically(path, write)


def file_stamp(path: Path) -> str:
    """Size and time of last change. FileNotFoundError where there is no file."""
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}"


def in_batches(positions: list[int], batch_size: int) -> Iterator[list[int]]:
    for start in range(0, len(positions), batch_size):
        yield positions[start : start + batch_size]
