"""FD (toy features): the Fréchet distance to real scenes in the toy scorer's image features.

The same distance as FID's in other features, hence under another name: its values say something
only beside each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from experiments.evaluate import frechet
from experiments.evaluate.clip_model import image_features, load_clip
from experiments.evaluate.features import cached_features, in_batches
from experiments.evaluate.painted import painted_features
from experiments.evaluate.scores import Scores
from experiments.store import Painted, digest
from experiments.toy import scenes

COLUMN = "FD (toy features)"


def measure(
    rows: list[Painted],
    baseline: Painted | None,
    settings: dict,
    cache: Path,
    device: str,
    scores: Scores,
) -> None:
    """Add each row's distance to `metrics.reference_scenes` held-out scenes, lower is better."""
    clip = load_clip(settings["scorer"], device, "scorer")
    count, seed = settings["reference_scenes"], settings["reference_seed"]
    drawn = scenes.sample(count, seed, held_out=True)

    def extract(images) -> np.ndarray:
        return image_features(clip, images)

    def compute(positions: list[int]) -> Iterator[np.ndarray]:
        for batch in in_batches(positions, settings["batch_size"]):
            yield extract([Image.fromarray(scenes.render(drawn[i])) for i in batch])

    # The source decides what a scene of a given seed and index looks like.
    source = digest(inspect.getsource(scenes))
    reference = cached_features(
        cache / clip.id / f"scenes-{source}.npz",
        [f"held out, seed {seed}, {i}" for i in range(count)],
        [""] * count,
        compute,
        scores.notes,
        "features of real scenes",
    )
    target = frechet.gaussian(reference)
    scores.add_column(COLUMN, "fd_toy", "lower")
    for row in rows:
        features = painted_features(
            row, cache / clip.id, extract, settings["batch_size"], scores.notes
        )
        distance = None
        if len(features) > 1:
            distance = frechet.frechet_distance(frechet.gaussian(features), target)
        scores.add(row.row, COLUMN, distance, len(features))
    scores.notes.append(
        f"{COLUMN}: {reference.shape[1]} image features of the toy scorer, weights with SHA-256 "
        f"{clip.weights_sha256[:8]}…, against {count} rendered scenes of the held-out split "
        f"(seed {seed}); not comparable with any FID."
    )
    smallest = min(len(row.prompts) for row in rows)
    scores.notes += frechet.warnings(COLUMN, smallest, reference.shape[1])
    scores.protocol["fd_toy"] = {
        "column": COLUMN,
        "weights_sha256": clip.weights_sha256,
        "reference": f"{count} held-out scenes, seed {seed}, source {source}",
        "reference_images": count,
    }
