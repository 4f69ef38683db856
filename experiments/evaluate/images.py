"""Reading images: any mode becomes RGB, EXIF orientation is applied, photographs are cropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from experiments.evaluate.settings import FILTERS

Image.MAX_IMAGE_PIXELS = None  # a photograph's size is no reason to warn in the middle of a run


def read_image(path: Path) -> Image.Image:
    """The picture as a viewer shows it, RGB; transparency lies on white.

    Raises:
        ValueError: the file is no image or not whole; the message names it.
    """
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
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
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: cannot be read as an image ({reason})") from error


def prepare_reference(
    image: Image.Image, painted: tuple[int, int], crop: str, size: str | int, filter: str
) -> Image.Image:
    """Crop and resize a photograph as `metrics.reference_size` says.

    Args:
        image: RGB.
        painted: width and height of the painted images, in pixels.
        crop: `center` cuts to the wanted aspect ratio, `none` keeps all (and a resize distorts).
        size: `painted`, `original` (no resize) or the side of a square in pixels.
        filter: a PIL resampling filter, lower case.
    """
    target = painted if size in ("painted", "original") else (size, size)
    if crop == "center":
        width, height = image.size
        scale = min(width / target[0], height / target[1])
        # Round, at least one pixel, never beyond the picture.
        cut = [
            max(1, min(side, round(scale * t))) for side, t in zip(image.size, target, strict=True)
        ]
        left, top = (width - cut[0]) // 2, (height - cut[1]) // 2
        image = image.crop((left, top, left + cut[0], top + cut[1]))
    if size == "original" or image.size == tuple(target):
        return image
    return image.resize(target, FILTERS[filter])


def to_tensor(image: Image.Image) -> torch.Tensor:
    """(3, height, width) uint8."""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)
