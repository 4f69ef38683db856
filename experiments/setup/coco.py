"""COCO: all photographs of a validation split, checked against its captions."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from experiments.setup.sources import PrepareError, Source, bad
from experiments.setup.write import Chosen

COUNTS = {2014: 40504, 2017: 5000}


def choose(source: Source, captions: Any, expect: int) -> tuple[list[Chosen], str]:
    """Which photographs belong to the set, by file name, and the rule in words.

    Args:
        source: of the photographs.
        captions: path of the split's captions JSON, whose `images` name them.
        expect: how many there must be.

    Raises:
        PrepareError: the JSON and the photographs differ, or their number is another.
    """
    listed = listed_images(captions)
    check_count("captions", expect, len(listed))
    names = {}
    for name in source.images():
        base = PurePosixPath(name).name
        if base in names:
            raise bad("src", source.name, f"holds {base} twice: {names[base]} and {name}")
        names[base] = name
    missing, strange = sorted(listed - names.keys()), sorted(names.keys() - listed)
    if missing or strange:
        parts = [f"{_some(missing)} of captions' images missing"] if missing else []
        parts += [f"{_some(strange)} not among captions' images"] if strange else []
        raise bad(
            "src", source.name, f"{expect} images are expected, found {len(names)}: "
            + "; ".join(parts),
        )  # fmt: skip
    check_count("src", expect, len(names))
    return [
        Chosen(f"{PurePosixPath(base).stem}.png", names[base]) for base in sorted(names)
    ], "all images of the split"


def check_count(key: str, expected: int, found: int) -> None:
    if found != expected:
        raise PrepareError(f"{key}: {expected} images are expected, found {found}")


def listed_images(captions: Any) -> set[str]:
    """File names that a captions JSON lists."""
    if captions is None:
        raise bad("captions", captions, "must be given: the split's captions JSON")
    path = Path(str(captions)).expanduser()
    if not path.is_file():
        raise bad("captions", captions, "no such file")
    try:
        images = json.loads(path.read_text(encoding="utf-8"))["images"]
        return {PurePosixPath(image["file_name"]).name for image in images}
    except (ValueError, KeyError, TypeError) as error:
        allowed = "must be COCO captions: images with file_name"
        raise bad("captions", captions, allowed) from error


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}"
