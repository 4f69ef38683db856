"""Features of painted rows, through the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from experiments.evaluate.features import cached_features, file_stamp, in_batches
from experiments.evaluate.images import read_image
from experiments.store import Painted

Extract = Callable[[list[Image.Image]], np.ndarray]  # RGB pictures to (batch, d)


def painted_features(
    row: Painted, folder: Path, extract: Extract, batch_size: int, notes: list[str]
) -> np.ndarray:
    """(n, d) features of a row's images in manifest order, kept in `folder/<painter>.npz`."""

    def compute(positions: list[int]) -> Iterator[np.ndarray]:
        for batch in in_batches(positions, batch_size):
            yield extract([read_image(row.images[i]) for i in batch])

    return cached_features(
        folder / f"{row.painter}.npz",
        [p.key for p in row.prompts],
        stamps(row),
        compute,
        notes,
        f"features of {row.row}",
    )


def stamps(row: Painted) -> list[str]:
    try:
        return [file_stamp(path) for path in row.images]
    except FileNotFoundError as error:
        raise ValueError(
            f"row {row.row}: {error.filename} is missing; run the stage generate"
        ) from None


def size_of(row: Painted) -> tuple[int, int]:
    """Width and height of a row's first image, in pixels."""
    return read_image(row.images[0]).size
