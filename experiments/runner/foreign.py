"""Pictures that somebody else painted: which prompt each belongs to, and rows made of folders.

Nothing is known of how they were painted, so that a folder's painter is its files' names and
contents. A picture's seed is the position of its prompt: pictures of different folders with the
same prompt and position are compared with each other.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from experiments.common.errors import bad
from experiments.common.files import digest
from experiments.metrics.hashes import hash_files
from experiments.metrics.settings import IMAGE_SUFFIXES, list_images
from experiments.painting import prompts
from experiments.painting.store import Painted, Prompt

NAME_COLUMNS = ("file_name", "file", "image", "name")


def in_order(names: Iterable[str]) -> list[str]:
    """File names sorted with their numbers by value: `img_2` comes before `img_10`."""
    return sorted(names, key=lambda name: (
        [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)], name
    ))  # fmt: skip


def read_prompts(path: Path) -> tuple[list[str], dict[str, str] | None, dict[str, Any]]:
    """A prompts file as texts in order, as {file name: text} where it names files, and its rule.

    Args:
        path: text with a prompt a line; CSV or a JSON list with a prompt and, if pictures are
            named, one of `NAME_COLUMNS`; a JSON object {file name: prompt}; COCO captions, whose
            pictures may be named by image id.

    Raises:
        ConfigError: no such file, or none of these.
    """
    if not path.is_file():
        raise bad("prompts", path, "no such file")
    content = _json(path) if path.suffix.lower() == ".json" else None
    if isinstance(content, dict) and all(isinstance(text, str) for text in content.values()):
        named = {name: prompts.clean(text) for name, text in content.items()}
        pairs, rule = [(text, name) for name, text in named.items()], {"file": path.name}
    else:
        pairs, rule = prompts.read_file(path, "one", seed=0)
        named = _named(path, content, pairs)
    if not pairs:
        raise bad("prompts", path, "the file holds no prompts")
    return [text for text, _ in pairs], named, rule


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise bad("prompts", path, f"is not JSON ({error})") from None


def _named(path: Path, content: Any, pairs: list[tuple[str, str]]) -> dict[str, str] | None:
    if isinstance(content, dict):
        files = {str(image["id"]): image.get("file_name") or image["id"]
                 for image in content["images"]}  # fmt: skip
        return {str(files[source]): text for text, source in pairs}
    entries: list[Any] = content if isinstance(content, list) else []
    if path.suffix.lower() == ".csv":
        entries = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    names = [_first(entry, NAME_COLUMNS) for entry in entries]
    if not names or None in names:
        return None
    texts = [_first(entry, prompts.CSV_COLUMNS) for entry in entries]
    found: dict[str, str] = {}
    for name, text in zip(names, texts, strict=True):
        if name in found:
            raise bad("prompts", path, f"names {name} twice")
        found[name] = prompts.clean(text or "")
    return found


def _first(entry: Any, columns: tuple[str, ...]) -> str | None:
    if not isinstance(entry, dict):
        return None
    value = next((entry[c] for c in columns if entry.get(c) not in (None, "")), None)
    return None if value is None else str(value)


def by_name(names: list[str], wanted: Iterable[str]) -> dict[str, str | None]:
    """{picture: the wanted name that it has}, None where it has none of them.

    The whole relative path counts first, then the file's name, then that without its suffix, then
    its value as a number (000000000139.png is 139).
    """
    table: dict[str, str | None] = {}
    for name in wanted:
        for alias in dict.fromkeys(_aliases(name)):
            table[alias] = None if alias in table else name  # None: it could be either
    return {
        name: next((table[a] for a in _aliases(name) if table.get(a) is not None), None)
        for name in names
    }


def _aliases(name: str) -> list[str]:
    path = PurePosixPath(name)
    stem = path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name
    whole = path.with_suffix("").as_posix() if stem != path.name else name
    return [name, whole, path.name, stem] + ([str(int(stem))] if stem.isdecimal() else [])


def assign(
    folder: Path, names: list[str], texts: list[str], named: dict[str, str] | None, what: str
) -> list[Prompt]:
    """The prompt of each picture of a folder.

    Args:
        names: of the pictures, in order.
        texts: of the prompts, in order.
        named: {file name: text} where the prompts name files.
        what: the key that they come from, for errors.

    Raises:
        ConfigError: a picture without a prompt, two with one, or numbers that do not agree.
    """
    if named is None:
        if len(names) != len(texts):
            allowed = f"holds {len(names)} images, {what} holds {len(texts)}; must be as many"
            raise bad("images", folder, allowed)
        pairs = zip(texts, names, strict=True)
        return [Prompt(text, i, name) for i, (text, name) in enumerate(pairs)]
    found, position = by_name(names, named), {name: i for i, name in enumerate(named)}
    lost = [name for name, key in found.items() if key is None]
    if lost:
        allowed = f"{len(lost)} of {len(names)} images are not named in {what}, first {lost[0]}"
        raise bad("images", folder, allowed)
    taken: dict[str, str] = {}
    for name, key in found.items():
        if key in taken:
            raise bad("images", folder, f"{taken[key]} and {name} both belong to {key}")
        taken[key] = name
    return [Prompt(named[found[name]], position[found[name]], name) for name in names]


def load_rows(
    folders: list[Path], baseline: Path | None, prompts_file: Path | None, cache: Path
) -> tuple[list[Painted], Painted | None, dict[str, Any], list[str]]:
    """Rows of the folders' pictures, the baseline's row first.

    Args:
        folders: each a row, named after its folder.
        baseline: the folder with which the others are compared; it may be among them.
        prompts_file: see `read_prompts`.
        cache: results folder; hashes of the pictures are kept under `cache/hashes`.

    Returns:
        All rows, the baseline among them, the rule of the prompts, and notes.

    Raises:
        ConfigError: a folder without images, or pictures that cannot be paired.
    """
    unique = {p.resolve(): p for p in ([] if baseline is None else [baseline]) + folders}
    pictures = {folder: _pictures("baseline" if folder is baseline else "images", folder)
                for folder in unique.values()}  # fmt: skip
    listed = {folder: list(found) for folder, found in pictures.items()}
    texts, named, rule = [], None, {}
    notes = ["How the images were painted is not known here."]
    if prompts_file is not None:
        texts, named, rule = read_prompts(prompts_file)
    elif baseline is not None:
        theirs = listed[unique[baseline.resolve()]]
        if all(None not in by_name(names, theirs).values() for names in listed.values()):
            named = {name: name for name in theirs}
        texts = theirs  # a name stands for the prompt: intervals treat images of a prompt as one
    rows = []
    for folder, label in zip(pictures, _labels(list(pictures)), strict=True):
        names = listed[folder]
        own = texts if prompts_file is not None or baseline is not None else names
        what = "baseline" if prompts_file is None else "prompts"
        chosen = assign(folder, names, own, named, what)
        paths = [pictures[folder][name] for name in names]
        index = cache / "hashes" / f"foreign-{digest(str(folder.resolve()))}.json"
        hashes, _ = hash_files(names, paths, index, notes, f"hashes of {label}")
        painter = digest([names, hashes])
        rows.append(Painted(label, painter, tuple(chosen), tuple(paths)))
    how = "by their names" if named is not None else "in the order of their names, numbers by value"
    if prompts_file is not None:
        notes.append(f"Images belong to the prompts of {prompts_file.name} {how}.")
        spare = len(named or texts) - min(len(row.images) for row in rows)
        if spare:
            notes.append(f"Up to {spare} of its {len(named or texts)} prompts have no image.")
    elif baseline is not None:
        notes.append(f"Images belong to the baseline's {how}.")
    return rows, rows[0] if baseline is not None else None, rule, notes


def _pictures(key: str, folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise bad(key, folder, "no such folder")
    paths = {path.relative_to(folder).as_posix(): path for path in list_images(folder)}
    if not paths:
        raise bad(key, folder, f"must be a folder with {' '.join(IMAGE_SUFFIXES)} files")
    return {name: paths[name] for name in in_order(paths)}


def _labels(folders: list[Path]) -> list[str]:
    """A row's name from each folder's, fit for a file's name, no two alike."""
    labels: list[str] = []
    for folder in folders:
        plain = re.sub(r"[^\w.+-]+", "_", folder.resolve().name) or "images"
        label, count = plain, 1
        while label in labels:
            count += 1
            label = f"{plain}-{count}"
        labels.append(label)
    return labels
