"""FID: the Fréchet distance between Inception v3 features of painted images and photographs.

Heusel et al. 2017 (arXiv 1706.08500), features as torch-fidelity computes them, layer 2048 with
its imitation of TensorFlow's resize. pytorch-fid, which the published tables used, resizes
differently and gives other numbers for the same images.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np

from experiments.evaluate import frechet
from experiments.evaluate.features import cached_features, file_stamp, in_batches
from experiments.evaluate.images import prepare_reference, read_image
from experiments.evaluate.inception import fid_column, inception_features, load_inception
from experiments.evaluate.painted import painted_features, size_of
from experiments.evaluate.scores import Scores
from experiments.evaluate.settings import list_images
from experiments.store import Painted, digest


def measure(
    rows: list[Painted],
    baseline: Painted | None,
    settings: dict,
    cache: Path,
    device: str,
    scores: Scores,
) -> None:
    """Add each row's distance to the photographs of `metrics.reference`, lower is better."""
    model, sha256 = load_inception(settings["inception_weights"], device)
    column = fid_column(sha256)
    folder = cache / f"inception-v3-compat-2048-{sha256[:16]}"
    batch_size = settings["batch_size"]

    def extract(images) -> np.ndarray:
        return inception_features(model, images, device)

    sizes = {row.row: size_of(row) for row in rows}
    painted = sizes[rows[0].row]
    reference, described = _reference(settings, painted, folder, extract, scores.notes)
    target = frechet.gaussian(reference)
    scores.add_column(column, "fid", "lower")
    for row in rows:
        features = painted_features(row, folder, extract, batch_size, scores.notes)
        distance = None
        if len(features) > 1:
            distance = frechet.frechet_distance(frechet.gaussian(features), target)
        scores.add(row.row, column, distance, len(features))
    scores.notes.append(
        f"{column}: torch-fidelity's Inception v3, layer 2048, weights with SHA-256 "
        f"{sha256[:8]}…, against {described}."
    )
    smallest = min(len(row.prompts) for row in rows)
    scores.notes += frechet.warnings(column, smallest, reference.shape[1])
    if len(reference) < 2048:
        scores.notes += [f"Warning: the reference of {column} has only {len(reference)} images."]
    if len(set(sizes.values())) > 1:
        scores.notes.append(
            f"Warning: the rows' images differ in size; the reference of {column} was brought to "
            f"{painted[0]} x {painted[1]}."
        )
    scores.protocol["fid"] = {
        "column": column,
        "features": f"torch-fidelity {version('torch-fidelity')} Inception v3, layer 2048",
        "weights_sha256": sha256,
        "reference": described,
        "reference_images": len(reference),
    }


def _reference(settings, painted, folder, extract, notes) -> tuple[np.ndarray, str]:
    """The photographs' features and a description of the set for the notes."""
    root, how = settings["reference"], settings["reference_size"]
    paths = list_images(root)
    names = [path.relative_to(root).as_posix() for path in paths]
    listed = digest([[name, path.stat().st_size] for name, path in zip(names, paths, strict=True)])
    preparation = {**how, "painted": None if isinstance(how["size"], int) else list(painted)}

    def compute(positions: list[int]) -> Iterator[np.ndarray]:
        for batch in in_batches(positions, settings["batch_size"]):
            yield extract(
                [
                    prepare_reference(
                        read_image(paths[i]), painted, how["crop"], how["size"], how["filter"]
                    )
                    for i in batch
                ]
            )

    features = cached_features(
        folder / f"reference-{digest([listed, preparation])}.npz",
        names,
        [file_stamp(path) for path in paths],
        compute,
        notes,
        "features of the reference",
    )
    if len(features) < 2:
        raise ValueError(f"metrics.reference={root}: at least 2 images are needed")
    crop = "not cropped" if how["crop"] == "none" else "centre-cropped"
    size = painted if how["size"] == "painted" else (how["size"], how["size"])
    resize = (
        "at their own size"
        if how["size"] == "original"
        else f"resized to {size[0]} x {size[1]} with PIL's {how['filter']} filter"
    )
    skipped = sum(1 for p in root.rglob("*") if p.is_file()) - len(paths)
    also = f", {skipped} other files ignored" if skipped else ""
    described = f"{len(paths)} images of {root.name} (list {listed[:8]}, {crop}, {resize}{also})"
    return features, described
