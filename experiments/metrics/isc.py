"""Inception Score: how sure and how varied a classifier is of the images. No reference set.

Salimans et al. 2016 (arXiv 1606.03498), through torch-fidelity: exp(E KL(p(y|x) || p(y))), mean
and standard deviation over 10 parts of the images in a random order.
"""

from __future__ import annotations

import torch
from torch_fidelity.metric_isc import (
    KEY_METRIC_ISC_MEAN,
    KEY_METRIC_ISC_STD,
    isc_features_to_metric,
)

from experiments.metrics.context import Context, Network
from experiments.metrics.distance import say_what_was_compared
from experiments.metrics.inception import inception, weights_column

SPLITS, SEED = 10, 2020  # torch-fidelity's own


def network(context: Context) -> Network:
    """Whose features it compares."""
    return inception(context)[1]


def measure(context: Context) -> None:
    """Add each row's mean over the parts, higher is better, the deviation beside it."""
    model, network = inception(context)
    column = weights_column("Inception Score", "IS", network.sha256)
    context.scores.add_column(column, "isc", "higher")
    weight = model.fc.weight.detach().cpu()
    for row in context.rows:
        n = len(row.prompts)
        if n < SPLITS:
            context.scores.add(row.row, column, None, n)
            continue
        # The layer above the kept features, without its bias: torch-fidelity's logits_unbiased.
        chunks = context.painted(row, network).chunks()
        logits = torch.cat([torch.from_numpy(chunk) @ weight.T for chunk in chunks])
        found = isc_features_to_metric(logits, SPLITS, shuffle=True, rng_seed=SEED)
        context.scores.add(row.row, column, found[KEY_METRIC_ISC_MEAN], n)
        context.scores.add_beside(
            row.row, column, f"std over {SPLITS} parts", found[KEY_METRIC_ISC_STD]
        )
    say_what_was_compared(context, network, column, "isc", None)
    context.notes[-1] += f" Mean over {SPLITS} parts, logits without bias, seed {SEED}."
    if any(len(row.prompts) < SPLITS for row in context.rows):
        context.notes[-1] += f" Needs at least {SPLITS} images."
