"""The reference set: a folder of photographs, a list of them, or pytorch-fid's statistics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.common.errors import ConfigError
from experiments.common.files import digest, file_sha256
from experiments.metrics.context import Context, Network
from experiments.metrics.features import Features
from experiments.metrics.file_list import read_file_list
from experiments.metrics.frechet import Gaussian, gaussian, of_moments
from experiments.metrics.hashes import hash_files
from experiments.metrics.images import reference_preparation
from experiments.metrics.settings import list_images, refuse
from experiments.metrics.statistics import read_statistics


@dataclass(frozen=True)
class Reference:
    """What rows are compared with. `features` and `gaussian.n` are None for statistics."""

    gaussian: Gaussian
    features: Features | None
    described: str

    @property
    def n(self) -> int | None:
        return self.gaussian.n


def reference(context: Context, network: Network) -> Reference:
    """`metrics.reference` in the features of a network.

    Raises:
        ConfigError: statistics of another number of features, a listed file that changed.
        ValueError: fewer than 2 images, or one that cannot be read.
    """
    return context.once(("reference", network.id), lambda: _reference(context, network))


def _reference(context: Context, network: Network) -> Reference:
    root = context.settings["reference"]
    if root.suffix.lower() == ".npz":
        given = read_statistics(root)
        if given.mean.size != network.size:
            raise refuse(
                "reference", root,
                f"statistics of {given.mean.size} features, but there are {network.size} of "
                f"{network.described}",
            )  # fmt: skip
        described = (
            f"the statistics {root.name} (SHA-256 {file_sha256(root)[:8]}…; the file does not say "
            "of which images, weights and resize)"
        )
        return Reference(of_moments(given), None, described)
    hashes, paths, listed = context.once("reference files", lambda: _files(context, root))
    context.once("reference size", lambda: _warn_of_sizes(context))
    prepare = reference_preparation(context.settings["reference_size"], context.painted_size)
    features = context.extract(hashes, paths, network, prepare, "features of the reference")
    if len(features) < 2:
        raise ConfigError(f"metrics.reference={root}: at least 2 images are needed")
    described = f"{len(paths)} images of {root.name} ({listed}, {prepare.described})"
    return Reference(gaussian(features), features, described)


def _files(context: Context, root: Path) -> tuple[list[str], list[Path], str]:
    """SHA-256 and paths of the photographs, and which list of them it is."""
    expected = None
    if root.is_dir():
        paths = list_images(root)
        names = [path.relative_to(root).as_posix() for path in paths]
        skipped = sum(1 for p in root.rglob("*") if p.is_file()) - len(paths)
        also = f", {skipped} other files ignored" if skipped else ""
    else:
        read = read_file_list(root)
        names, paths, expected = read.names, read.paths, read.sha256
        facts = [f"{k}: {v}" for k, v in read.header.items() if v and k != "root"]
        also = f", its head: {'; '.join(facts)}" if facts else ""
    index = context.cache / "hashes" / f"reference-{digest(str(root.resolve()))}.json"
    hashes, changed = hash_files(names, paths, index, context.notes, "hashes of the reference")
    if expected is not None and hashes != expected:
        name = next(n for n, a, b in zip(names, hashes, expected, strict=True) if a != b)
        raise refuse("reference", root, f"{name} is not the file that was listed")
    if changed:
        context.notes.append(
            f"Warning: {changed} images of the reference {root.name} are not those that were "
            "measured before; what depends on them was computed anew."
        )
    repeated = len(hashes) - len(set(hashes))
    also += f", {repeated} of them copies of others" if repeated else ""
    return hashes, paths, f"list {digest([names, hashes], 8)}{also}"


def _warn_of_sizes(context: Context) -> None:
    width, height = context.painted_size
    if len({context.size_of(row) for row in context.rows}) > 1:
        context.notes.append(
            "Warning: the rows' images differ in size; the reference was prepared for those of "
            f"{width} x {height}."
        )
