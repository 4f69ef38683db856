"""What every metric is given: rows and settings, and their features, each extracted once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from experiments.common.errors import ConfigError
from experiments.metrics.features import Features, FeatureStore
from experiments.metrics.hashes import hash_files, known_hashes
from experiments.metrics.images import Preparation, load_images, painted_preparation, read_image
from experiments.metrics.scores import Scores
from experiments.painting.packed import loose
from experiments.painting.store import Painted

T = TypeVar("T")
SMALL = 1000  # images; fewer are decoded faster than worker processes start


@dataclass(frozen=True)
class Network:
    """What turns pictures into features.

    Attributes:
        id: names its features: the same id, the same features of the same picture.
        extract: RGB pictures to (n, size) float32.
        size: how many features.
        sha256: of the weights.
        described: for a sentence.
    """

    id: str
    extract: Callable[[list[Image.Image]], np.ndarray]
    size: int
    sha256: str
    described: str


@dataclass
class Context:
    """One evaluation: `rows` are measured into `scores`, PSNR and the like against `baseline`.

    `cache` is the results folder; features lie under `cache/features`, hashes of images under
    `cache/hashes`. `settings` are those of `check_metrics`.
    """

    rows: list[Painted]
    baseline: Painted | None
    settings: dict
    cache: Path
    device: str
    scores: Scores
    _made: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """`make()`, called the first time only: models and sets that several metrics use."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    @property
    def notes(self) -> list[str]:
        return self.scores.notes

    @property
    def preparation(self) -> Preparation:
        """What happens to painted images before features."""
        return painted_preparation(self.settings["painted"])

    @property
    def painted_size(self) -> tuple[int, int]:
        """Width and height of the first row's first image, prepared, in pixels."""
        return self.size_of(self.rows[0])

    def size_of(self, row: Painted) -> tuple[int, int]:
        def read() -> tuple[int, int]:
            self.hashes(row)  # says which image is missing
            return self.preparation(read_image(row.images[0])).size

        return self.once(("size", row.row), read)

    def store(self, name: str) -> FeatureStore:
        folder = self.cache / "features" / name
        return self.once(("store", name), lambda: FeatureStore(folder, self.notes))

    def hashes(self, row: Painted) -> list[str]:
        """SHA-256 of a row's image files in manifest order; a note where they were edited."""

        def hash_row() -> list[str]:
            try:
                names, index = hash_index(self.cache, row)
                label = f"hashes of {row.row}"
                found, changed = hash_files(
                    names, row.images, index, self.notes, label, row.left_out
                )
            except FileNotFoundError as error:
                raise ConfigError(
                    f"row {row.row}: {error.filename} is missing; run the stage generate"
                ) from None
            if changed:
                self.notes.append(
                    f"Warning: {changed} images of row {row.row} are not those that were measured "
                    "before; what depends on them was computed anew."
                )
            return found

        return self.once(("hashes", row.row, row.painter), hash_row)

    def painted(self, row: Painted, network: Network) -> Features:
        """(n, d) features of a row's images in manifest order."""
        return self.extract(
            self.hashes(row), row.images, network, self.preparation, f"features of {row.row}"
        )

    def extract(self, hashes, paths, network: Network, prepare: Preparation, label) -> Features:
        """(n, d) features of files, kept under their SHA-256."""

        def compute(positions: list[int]) -> Iterator[np.ndarray]:
            for batch in self.load([paths[i] for i in positions], prepare):
                yield network.extract(batch)

        return self.store(space(network.id, prepare)).get(hashes, compute, label)

    def load(
        self, paths: list[Path], prepare: Preparation, batch_size: int | None = None
    ) -> Iterator[list[Image.Image]]:
        """Batches of pictures, decoded in `metrics.workers` processes.

        Raises:
            ConfigError: pictures that were left out (`keep_images`) were never measured so.
        """
        lost = [path for path in paths if any(path in row.left_out for row in self.rows)]
        if lost:
            raise ConfigError(
                f"{len(lost)} images were not kept (keep_images) and this was not measured before; "
                f"delete {loose(lost[0]).parents[1] / 'unkept'} to paint them again"
            )
        workers = self.settings["workers"]
        if workers is None:
            workers = 0 if len(paths) < SMALL else min(4, os.cpu_count() or 1)
        return load_images(paths, prepare, batch_size or self.settings["batch_size"], workers)


def space(network: str, prepare: Preparation) -> str:
    """The folder of features of images so prepared."""
    return f"{network}-{prepare.id}" if prepare.id else network


def hash_index(cache: Path, row: Painted) -> tuple[list[str], Path]:
    """The names of a row's images in the file that keeps their hashes, and that file."""
    names = [os.path.relpath(loose(path), cache) for path in row.images]
    return names, cache / "hashes" / f"{row.painter}.json"


def painted_feature_array(row: Painted, folder: Path) -> np.ndarray | None:
    """(n, d) float32 features of a row in manifest order, as the last evaluation left them.

    Args:
        folder: one of the folders under `<results>/features`.

    Returns:
        None where the folder lacks one of the row's images.
    """
    keys = known_hashes(*hash_index(folder.parents[1], row))
    store = FeatureStore(folder, [])
    if not keys or not all(store.known(key) for key in keys):
        return None
    return store.get(keys, lambda positions: iter(()), row.row).array()
