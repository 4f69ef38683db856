"""Precision and recall of painted images: how many lie among photographs, and the reverse.

Kynkäänniemi et al. 2019 (arXiv 1904.06991) through torch-fidelity: balls to the third nearest
neighbour in VGG-16's features, or with `metrics.prc_network=inception` in those that FID uses; the
columns' names say which.
"""

from __future__ import annotations

import torch
from torch_fidelity.metric_prc import (
    KEY_METRIC_PRECISION,
    KEY_METRIC_RECALL,
    prc_features_to_metric,
)

from experiments.metrics.context import Context, Network
from experiments.metrics.distance import say_what_was_compared
from experiments.metrics.inception import inception, network_name
from experiments.metrics.reference import reference
from experiments.metrics.vgg16 import vgg16, vgg16_name

NEIGHBOURS = 3  # torch-fidelity's own
COLUMNS = {KEY_METRIC_PRECISION: "Precision", KEY_METRIC_RECALL: "Recall"}


def network(context: Context) -> Network:
    """The one that `metrics.prc_network` chooses."""
    return vgg16(context) if context.settings["prc_network"] == "vgg16" else inception(context)[1]


def measure(context: Context) -> None:
    """Add each row's precision and recall, 0 to 1, higher is better."""
    features = network(context)
    named = vgg16_name if context.settings["prc_network"] == "vgg16" else network_name
    where = named(features.sha256)
    target = reference(context, features)
    columns = {key: f"{name} ({where})" for key, name in COLUMNS.items()}
    for key, column in columns.items():
        context.scores.add_column(column, key, "higher")
    theirs = torch.from_numpy(target.features.array())
    for row in context.rows:
        n, found = len(row.prompts), {}
        if min(n, target.n) > NEIGHBOURS:
            found = prc_features_to_metric(
                torch.from_numpy(context.painted(row, features).array()),
                theirs,
                prc_neighborhood=NEIGHBOURS,
                save_cpu_ram=True,
                verbose=False,
            )
        for key, column in columns.items():
            context.scores.add(row.row, column, found.get(key), n)
    both = " and ".join(columns.values())
    say_what_was_compared(context, features, both, "prc", target)
    context.notes[-1] += f" Balls to neighbour {NEIGHBOURS}; both depend on the numbers of images."
