"""Fréchet distance between a row's images and the baseline row's, in Inception v3 features.

What papers on acceleration such as SADA and cache-dit print as FID: how far a method moves a
model's images, whatever their quality. No photograph is involved, hence another name.
"""

from __future__ import annotations

from experiments.metrics.context import Context, Network
from experiments.metrics.distance import say_what_was_compared
from experiments.metrics.frechet import frechet_distance, gaussian, warnings
from experiments.metrics.inception import inception, network_name


def network(context: Context) -> Network:
    """Whose features it compares."""
    return inception(context)[1]


def measure(context: Context) -> None:
    """Add each row's distance to the baseline, lower is better; the baseline has none."""
    baseline, scores = context.baseline, context.scores
    if baseline is None:
        context.notes.append("FD to baseline: left out, there are no images of the baseline row.")
        return
    _, network = inception(context)
    column = f"FD to baseline ({network_name(network.sha256)})"
    scores.add_column(column, "fid_to_baseline", "lower")
    theirs = context.painted(baseline, network)
    target = gaussian(theirs) if len(theirs) > 1 else None
    for row in context.rows:
        features, distance = context.painted(row, network), None
        if len(features) > 1 and target is not None and row.painter != baseline.painter:
            distance = frechet_distance(gaussian(features), target)
        scores.add(row.row, column, distance, len(features))
    say_what_was_compared(context, network, column, "fid_to_baseline", None)
    context.notes[-1] += f" Against the {len(theirs)} images of row {baseline.row}; it is no FID."
    smallest = min(len(row.prompts) for row in [*context.rows, baseline])
    scores.notes += warnings(column, smallest, network.size)
