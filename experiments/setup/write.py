"""Writing a prepared set: PNGs, each of them whole, and two lists of checksums.

A PNG carries what it was made from in a text chunk, so that an interrupted preparation goes on
where it stopped. The lists appear at the end: `files.txt` of the PNGs, which `sha256sum -c` and
`metrics.reference` read too, and `sources.txt` of the photographs as they were, in the same order.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tqdm import tqdm

from experiments.common.files import write_atomically, write_text
from experiments.painting.store import TEXT_KEY
from experiments.setup.sources import SUFFIXES, PrepareError, Source, bad

LIST, SOURCES = "files.txt", "sources.txt"


@dataclass(frozen=True)
class Chosen:
    """One photograph of a set: the PNG's name, and the source's name for it."""

    png: str
    source: str


def write_set(
    source: Source, chosen: list[Chosen], out: Path, how: dict[str, Any], facts: dict[str, Any]
) -> int:
    """Prepare what is missing or damaged, then list everything.

    Args:
        source: of the photographs.
        chosen: the set, in the order of its folder.
        out: the folder; it may hold an earlier, unfinished or finished, preparation.
        how: crop, filter, size, as in `metrics.reference_size`.
        facts: further lines of the list's head.

    Returns:
        How many images were prepared; those that were intact are not.

    Raises:
        PrepareError: a photograph cannot be read, or `out` holds images of something else.
    """
    if out.exists() and not out.is_dir():
        raise bad("out", out, "is a file; must be a folder")
    refuse_strangers(out, {c.png for c in chosen})
    listed = read_list(out / LIST)
    records = {c.png: {"photograph": c.source, "bytes": source.sizes[c.source], **how}
               for c in chosen}  # fmt: skip
    found = {}
    for c in tqdm(chosen, desc="intact", unit="image", leave=False):
        checksums = checksums_if_intact(out / c.png, records[c.png])
        if checksums is not None and listed.get(c.png, checksums[0]) == checksums[0]:
            found[c.png] = checksums
    todo = {c.source: c for c in chosen if c.png not in found}
    if todo:
        (out / LIST).unlink(missing_ok=True)  # until it is true again
    # An archive is read from front to back.
    queue = [todo[name] for name in source.sizes if name in todo]
    with tqdm(queue, out.name, len(chosen), unit="image", initial=len(found)) as bar:
        for c in bar:
            found[c.png] = _write_png(source, c, out / c.png, how, records[c.png])
    facts = {**facts, **how, "count": len(chosen)}
    _write_list(out / SOURCES, facts, [(found[c.png][1], c.source) for c in chosen])
    _write_list(out / LIST, facts, [(found[c.png][0], c.png) for c in chosen])
    return len(todo)


def read_list(path: Path) -> dict[str, str]:
    """{name: SHA-256} of `files.txt` or `sources.txt`, empty where there is no such file."""
    if not path.is_file():
        return {}
    lines = (line.partition("  ") for line in path.read_text(encoding="utf-8").splitlines())
    return {name: checksum for checksum, _, name in lines if name and checksum[0] != "#"}


def _write_list(path: Path, facts: dict[str, Any], entries: list[tuple[str, str]]) -> None:
    text = "".join(f"# {key}: {' '.join(str(value).split())}\n" for key, value in facts.items())
    text += "".join(f"{checksum}  {name}\n" for checksum, name in entries)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)


def refuse_strangers(out: Path, wanted: set[str]) -> None:
    """Images that are not of the set would be counted as its photographs."""
    images = (p for p in out.rglob("*") if p.suffix.lower() in SUFFIXES)
    names = sorted(p.relative_to(out).as_posix() for p in images if not p.name.startswith("."))
    strange = [name for name in names if name not in wanted]
    if strange:
        allowed = f"holds {len(strange)} images that are not of this set, first {strange[0]}"
        raise bad("out", out, f"{allowed}; must be an empty folder or this set's own")


def checksums_if_intact(path: Path, record: dict[str, Any]) -> tuple[str, str] | None:
    """SHA-256 of a PNG and of its photograph, if it is whole and was made as `record` says."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            written = json.loads(image.info[TEXT_KEY])
            photograph = written.pop("sha256")
            image.verify()  # the chunks' own checksums
    except (OSError, SyntaxError, ValueError, KeyError, AttributeError):
        return None
    return (sha256(path), photograph) if written == record else None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_png(
    source: Source, chosen: Chosen, path: Path, how: dict, record: dict
) -> tuple[str, str]:
    """Prepare one photograph; SHA-256 of the PNG and of the photograph."""
    # Imported here: it comes with torch, which no message about a wrong setting should wait for.
    from experiments.metrics.images import decoded, reference_preparation

    content = source.read(chosen.source)
    try:
        image = decoded(io.BytesIO(content), f"{source.name}/{chosen.source}")
    except ValueError as error:
        raise PrepareError(f"src: {error}") from error
    # A photograph that keeps its size is cropped to a square.
    prepared = reference_preparation(how, painted=(1, 1))(image)
    photograph = hashlib.sha256(content).hexdigest()
    info = PngInfo()
    info.add_itxt(TEXT_KEY, json.dumps({**record, "sha256": photograph}, sort_keys=True))
    write_atomically(path, lambda beside: prepared.save(beside, format="PNG", pnginfo=info))
    return sha256(path), photograph
