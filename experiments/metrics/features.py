"""Features computed once and kept under the SHA-256 of what they are of, memory-mapped.

A folder is one kind of features: one network, one preparation of the images. In it lie shards that
are only ever added: `<name>.npy`, (n, d) float32, and `<name>.txt`, its n keys, one a line. The
keys are written last; a shard without them does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from experiments.common.files import digest, write_atomically

SAVE_EVERY = 60.0  # seconds; what an interruption can cost
CHUNK = 1024  # rows read into memory at a time


class Features:
    """Rows of memory-mapped shards, (n, d) float32 in the order of the keys asked for."""

    def __init__(self, shards: list[np.ndarray], where: np.ndarray):
        self._shards = shards
        self._where = where  # (n, 2): shard and line
        self.shape = (len(where), shards[0].shape[1] if shards else 0)

    def __len__(self) -> int:
        return self.shape[0]

    def chunks(self, size: int = CHUNK) -> Iterator[np.ndarray]:
        """(<= size, d) arrays in order; only one is in memory at a time."""
        for start in range(0, len(self), size):
            shard, line = self._where[start : start + size].T
            rows = np.empty((len(shard), self.shape[1]), np.float32)
            for i in np.unique(shard):
                rows[shard == i] = self._shards[i][line[shard == i]]
            yield rows

    def rows(self, positions: Sequence[int]) -> Features:
        """Some of the rows, such as one replicate's."""
        return Features(self._shards, self._where[positions])

    def array(self) -> np.ndarray:
        """All rows in memory."""
        return np.concatenate([np.empty((0, self.shape[1]), np.float32), *self.chunks()])


class FeatureStore:
    """The features in a folder. `notes` gets a sentence for each unreadable shard dropped."""

    def __init__(self, folder: Path, notes: list[str]):
        self.folder = folder
        self._notes = notes
        self._shards: list[np.ndarray] = []
        self._position: dict[str, tuple[int, int]] = {}
        for path in sorted(folder.glob("*.npy")):
            self._open(path)

    def known(self, key: str) -> bool:
        return key in self._position

    def get(
        self, keys: Sequence[str], compute: Callable[[list[int]], Iterator[np.ndarray]], label: str
    ) -> Features:
        """Features of `keys` in their order, from the folder and `compute` for what it lacks.

        Args:
            keys: n texts without white space; a repeated one is computed once.
            compute: takes positions in `keys` and yields arrays (batch, d) for them, in that
                order. What it yielded is kept, at the latest a minute after, if it then fails.
            label: of the progress bar.
        """
        first: dict[str, int] = {}
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        todo = [i for key, i in first.items() if not self.known(key)]
        if todo:
            self._extend(keys, todo, compute, label)
        where = np.array([self._position[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        return Features(self._shards, where)

    def _extend(self, keys, todo, compute, label) -> None:
        fresh: list[np.ndarray] = []
        saved, since = 0, time.monotonic()

        def save() -> None:
            nonlocal saved, since
            if fresh:
                rows = np.concatenate(fresh)
                self._write([keys[i] for i in todo[saved : saved + len(rows)]], rows)
                saved, since = saved + len(rows), time.monotonic()
                fresh.clear()

        try:
            with tqdm(total=len(todo), desc=label, unit="im", leave=False) as bar:
                for batch in compute(todo):
                    fresh.append(np.asarray(batch, np.float32))
                    bar.update(len(batch))
                    if time.monotonic() - since > SAVE_EVERY:
                        save()
        finally:
            save()
        if saved != len(todo):
            raise RuntimeError(f"{label}: {saved} features for {len(todo)} images")

    def _write(self, keys: list[str], rows: np.ndarray) -> None:
        path = (
            self.folder / f"{digest(keys)}.npy"
        )  # two processes never mean different shards by it

        def write(beside: Path) -> None:
            with beside.open("wb") as file:  # np.save appends .npy to a path, not to an open file
                np.save(file, rows)

        write_atomically(path, write)
        text = "".join(f"{key}\n" for key in keys)
        write_atomically(path.with_suffix(".txt"), lambda beside: beside.write_text(text, "ascii"))
        self._open(path)

    def _open(self, path: Path) -> None:
        try:
            keys = path.with_suffix(".txt").read_text("ascii").split()
            shard = np.lib.format.open_memmap(path, mode="r")
            width = self._shards[0].shape[1:] if self._shards else shard.shape[1:]
            if shard.dtype != np.float32 or shard.shape != (len(keys), *width):
                raise ValueError("not the features of these keys")
        except FileNotFoundError:  # interrupted before the keys were written
            return
        except (OSError, ValueError):
            self._notes.append(
                f"The feature cache {path.parent.name}/{path.name} was unreadable and was rebuilt."
            )
            path.unlink()
            return
        for line, key in enumerate(keys):
            self._position[key] = len(self._shards), line
        self._shards.append(shard)


def in_batches(positions: list[int], batch_size: int) -> Iterator[list[int]]:
    for start in range(0, len(positions), batch_size):
        yield positions[start : start + batch_size]
