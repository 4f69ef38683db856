"""Reading images: any mode becomes RGB, EXIF orientation is applied; cropping and resizing."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps

from experiments.common.errors import ConfigError, first_line
from experiments.common.files import digest
from experiments.metrics.settings import FILTERS
from experiments.painting.packed import opened

Image.MAX_IMAGE_PIXELS = None  # a photograph's size is no reason to warn in the middle of a run


def read_image(path: Path) -> Image.Image:
    """The picture as a viewer shows it, RGB; transparency lies on white.

    Raises:
        ConfigError: the file is no image or not whole; the message names it.
    """
    try:
        with opened(path) as file:
            return decoded(file, str(path))
    except OSError as error:
        raise unreadable(str(path), error) from error


def decoded(file: BinaryIO, name: str) -> Image.Image:
    """`read_image` of an open file, which messages call `name`."""
    try:
        with Image.open(file) as picture:
            image = ImageOps.exif_transpose(picture)
            if image.mode.startswith("I;16") or image.mode == "I":
                # PIL clips 16-bit values to 255 when it converts them; keep the upper byte.
                wide = np.asarray(image, dtype=np.int64).clip(0, 65535)
                return Image.fromarray((wide >> 8).astype(np.uint8)).convert("RGB")
            if image.has_transparency_data:
                image = image.convert("RGBA")
                white = Image.new("RGBA", image.size, "white")
                return Image.alpha_composite(white, image).convert("RGB")
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(name, error) from error


def unreadable(name: str, error: Exception) -> ConfigError:
    reason = first_line(error)
    return ConfigError(f"{name}: cannot be read as an image ({reason})")


@dataclass(frozen=True)
class Preparation:
    """What is done to a picture before features: cropped, resized, saved as JPEG and read back.

    Attributes:
        crop: width and height whose ratio the middle is cut to; None keeps all.
        size: width and height in pixels to resize to, which may distort; None keeps them.
        filter: the resize's, a PIL resampling filter in lower case.
        jpeg: quality of the JPEG (4:2:0, as PIL writes it); None for no round trip.
    """

    crop: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    filter: str = "lanczos"
    jpeg: int | None = None

    def __call__(self, image: Image.Image) -> Image.Image:
        """RGB to RGB."""
        if self.crop is not None:
            scale = min(side / c for side, c in zip(image.size, self.crop, strict=True))
            # Round, at least one pixel, never beyond the picture.
            width, height = (
                max(1, min(side, round(scale * c)))
                for side, c in zip(image.size, self.crop, strict=True)
            )
            left, top = (image.width - width) // 2, (image.height - height) // 2
            image = image.crop((left, top, left + width, top + height))
        if self.size is not None and image.size != self.size:
            image = image.resize(self.size, FILTERS[self.filter])
        if self.jpeg is not None:
            written = io.BytesIO()
            image.save(written, format="JPEG", quality=self.jpeg)
            image = Image.open(written).convert("RGB")
        return image

    @property
    def id(self) -> str:
        """Names the features of images so prepared; empty where nothing is done."""
        if self.crop is None and self.size is None and self.jpeg is None:
            return ""
        return digest(asdict(self), 12)

    @property
    def described(self) -> str:
        """For a sentence, such as `centre-cropped, resized to 64 x 64 with PIL's box filter`."""
        parts = ["not cropped" if self.crop is None else "centre-cropped"]
        if self.size is None:
            parts.append("at their own size")
        else:
            width, height = self.size
            parts.append(f"resized to {width} x {height} with PIL's {self.filter} filter")
        if self.jpeg is not None:
            parts.append(f"saved as JPEG of quality {self.jpeg} and read back")
        return ", ".join(parts)


def painted_preparation(how: dict) -> Preparation:
    """What `metrics.painted` says; the side of a square in pixels where it says a size."""
    size = None if how["size"] == "original" else (how["size"], how["size"])
    quality = (how["quality"] or 75) if how["format"] == "jpeg" else None
    return Preparation(None, size, how["filter"], quality)


def reference_preparation(how: dict, painted: tuple[int, int]) -> Preparation:
    """What `metrics.reference_size` says, for painted images of that width and height."""
    target = (how["size"], how["size"]) if isinstance(how["size"], int) else painted
    crop = target if how["crop"] == "center" else None
    return Preparation(crop, None if how["size"] == "original" else target, how["filter"])


class _Files(torch.utils.data.Dataset):
    def __init__(self, paths: Sequence[Path], prepare: Preparation):
        self.paths, self.prepare = paths, prepare

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Image.Image | str:
        try:
            return self.prepare(read_image(self.paths[i]))
        except ValueError as error:  # as a text: a worker would wrap it in its traceback
            return str(error)


def load_images(
    paths: Sequence[Path], prepare: Preparation, batch_size: int, workers: int
) -> Iterator[list[Image.Image]]:
    """Batches of prepared RGB pictures in the order of the paths.

    Args:
        workers: processes that decode; 0 decodes in this one.

    Raises:
        ConfigError: a file cannot be read; the message names it.
    """
    batches = torch.utils.data.DataLoader(
        _Files(paths, prepare),
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=list,
        generator=torch.Generator(),  # the default would draw from the global one
    )
    for batch in batches:
        for item in batch:
            if isinstance(item, str):
                raise ConfigError(item)
        yield batch


def by_size(images: list[Image.Image], network: Callable[[torch.Tensor], np.ndarray]) -> np.ndarray:
    """(n, d) from a function of (k, 3, height, width) uint8, called for runs of equal size."""
    parts = []
    for _, run in groupby(images, key=lambda image: image.size):
        parts.append(network(torch.stack([to_tensor(image) for image in run])))
    return np.concatenate(parts)


def to_tensor(image: Image.Image) -> torch.Tensor:
    """(3, height, width) uint8."""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)
