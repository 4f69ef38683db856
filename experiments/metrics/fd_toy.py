"""FD (toy features): the Fréchet distance to real scenes in the toy scorer's image features.

The same distance as FID's in other features, hence under another name: its values say something
only beside each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
from PIL import Image

from experiments.common.files import digest
from experiments.metrics.clip_model import clip_network
from experiments.metrics.context import Context, Network
from experiments.metrics.distance import add_distance
from experiments.metrics.features import in_batches
from experiments.metrics.frechet import gaussian
from experiments.metrics.hashes import text_key
from experiments.metrics.reference import Reference
from experiments.toy import scenes

COLUMN = "FD (toy features)"


def network(context: Context) -> Network:
    """Whose features it compares."""
    return clip_network(context, "scorer")[1]


def measure(context: Context) -> None:
    """Add each row's distance to `metrics.reference_scenes` held-out scenes, lower is better."""
    _, network = clip_network(context, "scorer")
    count, seed = context.settings["reference_scenes"], context.settings["reference_seed"]
    drawn = scenes.sample(count, seed, held_out=True)

    def compute(positions: list[int]) -> Iterator[np.ndarray]:
        for batch in in_batches(positions, context.settings["batch_size"]):
            yield network.extract([Image.fromarray(scenes.render(drawn[i])) for i in batch])

    # The source decides what a scene of a given seed and index looks like.
    source = digest(inspect.getsource(scenes))
    keys = [text_key("held out", source, str(seed), str(i)) for i in range(count)]
    store = context.store(f"{network.id}-scenes")
    features = store.get(keys, compute, "features of real scenes")
    described = f"{count} rendered scenes of the held-out split (seed {seed}, source {source})"
    target = Reference(gaussian(features), features, described)
    add_distance(context, network, COLUMN, "fd_toy", target)
    context.notes.append(f"{COLUMN} is not comparable with any FID.")
