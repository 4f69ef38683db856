"""ImageNet-1k: the first images of each class of the validation set, in file order.

ToMe for Stable Diffusion compared with five a class (github.com/dbolya/tomesd/issues/46).
"""

from __future__ import annotations

import io
import re
from pathlib import PurePosixPath

from scipy.io import loadmat

from experiments.setup.sources import PrepareError, Source, bad
from experiments.setup.write import Chosen

TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"
META = "data/meta.mat"
OFFICIAL = re.compile(r"ILSVRC2012_val_(\d{8})")


def choose(
    source: Source, labels: Source | None, classes: int, per_class: int
) -> tuple[list[Chosen], str]:
    """Which photographs belong to the set, class by class, and the rule in words.

    Args:
        source: a folder a class, or the validation images in one folder.
        labels: the ILSVRC2012 devkit; None where the folders are the classes.
        classes: how many there must be.
        per_class: how many images of each are taken.

    Raises:
        PrepareError: classes or images are missing, or a flat source has no labels.
    """
    names = source.images()
    if labels is None:
        grouped = _by_folder(source, names, classes)
    else:
        grouped = _by_label(names, ground_truth(labels))
    check_counts({name: len(files) for name, files in grouped.items()}, classes, per_class)
    first = [(c, name) for c in sorted(grouped) for name in grouped[c][:per_class]]
    # The number keeps the order of the folder the order of the set, whatever a class is called.
    digits = max(5, len(str(len(first) - 1)))
    chosen = [
        Chosen(f"{i:0{digits}d}_{c.replace('/', '-')}_{PurePosixPath(name).stem}.png", name)
        for i, (c, name) in enumerate(first)
    ]
    return chosen, f"first {per_class} images of each of {classes} classes in file order"


def check_counts(counts: dict[str, int], classes: int, per_class: int) -> None:
    """Raise PrepareError unless `per_class` images can be taken of each of `classes` classes.

    Args:
        counts: {class: images there are}.
    """
    found = sum(min(count, per_class) for count in counts.values())
    few = sorted(name for name, count in counts.items() if count < per_class)
    if len(counts) == classes and not few:
        return
    example = f"; {few[0]} has only {counts[few[0]]}" if few else ""
    raise PrepareError(
        f"src: {classes} classes x {per_class} = {classes * per_class} images are expected, found "
        f"{found} in {len(counts)} classes{example}"
    )


def ground_truth(devkit: Source) -> list[str]:
    """The class (WordNet id) of every validation image, in file order."""
    truth, meta = devkit.find(TRUTH), devkit.find(META)
    if truth is None or meta is None:
        raise bad("labels", devkit.name, f"must hold {TRUTH} and {META} (the ILSVRC2012 devkit)")
    wnids = read_synsets(devkit.read(meta))
    try:
        ids = [int(line) for line in devkit.read(truth).decode("ascii").split()]
        return [wnids[i] for i in ids]
    except (ValueError, KeyError) as error:
        allowed = f"{TRUTH} must be numbers of classes that {META} lists ({error})"
        raise bad("labels", devkit.name, allowed) from error


def read_synsets(content: bytes) -> dict[int, str]:
    """{ILSVRC2012_ID: WNID} of the classes proper; synsets with children only group them."""
    try:
        synsets = loadmat(io.BytesIO(content), squeeze_me=True)["synsets"].reshape(-1)
        return {
            int(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in synsets if int(s["num_children"]) == 0
        }
    # NotImplementedError: a .mat of version 7.3, which SciPy cannot read.
    except (ValueError, KeyError, IndexError, TypeError, NotImplementedError) as error:
        raise PrepareError(f"labels: {META} is not the devkit's ({error})") from error


def _by_folder(source: Source, names: list[str], classes: int) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(PurePosixPath(name).parent.as_posix(), []).append(name)
    if len(grouped) == 1 and classes > 1:
        allowed = (
            "all images lie in one folder: labels=<ILSVRC2012 devkit archive> must say classes"
        )
        raise bad("src", source.name, allowed)
    return grouped


def _by_label(names: list[str], truth: list[str]) -> dict[str, list[str]]:
    names = sorted(names, key=lambda name: PurePosixPath(name).name)
    if len(names) != len(truth):
        raise PrepareError(
            f"src: {len(truth)} images are expected, as many as labels, found {len(names)}"
        )
    grouped: dict[str, list[str]] = {}
    for i, (name, wnid) in enumerate(zip(names, truth, strict=True)):
        official = OFFICIAL.match(PurePosixPath(name).name)
        if official and int(official[1]) != i + 1:
            raise PrepareError(f"src: {name} stands where image {i + 1} is expected")
        grouped.setdefault(wnid, []).append(name)
    return grouped
