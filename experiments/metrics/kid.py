"""KID: squared maximum mean discrepancy of Inception v3 features, cubic kernel.

Bińkowski et al. 2018 (arXiv 1801.01401), equation 4, through torch-fidelity: mean and standard
deviation over random subsets of painted images and photographs. Unbiased at any number of images.
"""

from __future__ import annotations

import torch
from torch_fidelity.metric_kid import (
    KEY_METRIC_KID_MEAN,
    KEY_METRIC_KID_STD,
    kid_features_to_metric,
)

from experiments.metrics.context import Context, Network
from experiments.metrics.distance import say_what_was_compared
from experiments.metrics.inception import inception, weights_column
from experiments.metrics.reference import reference

SEED = 2020  # torch-fidelity's own


def network(context: Context) -> Network:
    """Whose features it compares."""
    return inception(context)[1]


def measure(context: Context) -> None:
    """Add each row's mean over subsets, lower is better, the deviation beside it."""
    _, network = inception(context)
    target = reference(context, network)
    column = weights_column("KID", "KD", network.sha256)
    wanted, subsets = context.settings["kid_subset_size"], context.settings["kid_subsets"]
    size = min(wanted, target.n, *(len(row.prompts) for row in context.rows))
    context.scores.add_column(column, "kid", "lower")
    theirs = torch.from_numpy(target.features.array())
    for row in context.rows:
        n = len(row.prompts)
        if size < 2:
            context.scores.add(row.row, column, None, n)
            continue
        found = kid_features_to_metric(
            torch.from_numpy(context.painted(row, network).array()),
            theirs,
            kid_subsets=subsets,
            kid_subset_size=size,
            rng_seed=SEED,
            verbose=False,
        )
        context.scores.add(row.row, column, found[KEY_METRIC_KID_MEAN], n)
        context.scores.add_beside(
            row.row, column, f"std over {subsets} subsets", found[KEY_METRIC_KID_STD]
        )
    say_what_was_compared(context, network, column, "kid", target)
    fewer = f" (metrics.kid_subset_size is {wanted}, there are not so many)" * (size < wanted)
    context.notes[-1] += (
        f" Mean over {subsets} subsets of {size} images{fewer}, cubic kernel, seed {SEED}."
    )
    context.scores.protocol["kid"] |= {"subset_size": size, "subsets": subsets, "seed": SEED}
