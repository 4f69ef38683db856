"""Fréchet distances of rows to a reference, whatever the features."""

from __future__ import annotations

from experiments.metrics.context import Context, Network
from experiments.metrics.frechet import frechet_distance, gaussian, warnings
from experiments.metrics.reference import Reference
from experiments.painting.store import Painted


def add_distance(
    context: Context, network: Network, column: str, metric: str, target: Reference
) -> None:
    """Add each row's distance to `target`, lower is better, and what was compared."""
    scores = context.scores
    scores.add_column(column, metric, "lower")
    smallest = []
    for row in context.rows:
        features = context.painted(row, network)
        parts = [features.rows(positions) for positions in replicates_of(row)]
        distances = [frechet_distance(gaussian(p), target.gaussian) for p in parts if len(p) > 1]
        if len(distances) > 1:
            scores.add_replicates(row.row, column, distances)
        # The mean over replicates: a distance falls with the number of images, so one of all
        # images together could not stand beside a row that was painted once.
        mean = sum(distances) / len(distances) if distances else None
        smallest.append(min(len(p) for p in parts))
        scores.add(row.row, column, mean, smallest[-1])
    say_what_was_compared(context, network, column, metric, target)
    scores.notes += warnings(column, min(smallest), network.size)
    if target.n is not None and target.n <= network.size:
        scores.notes.append(f"Warning: the reference of {column} has only {target.n} images.")


def replicates_of(row: Painted) -> list[list[int]]:
    """Positions in the row's images of each replicate of its prompts."""
    found: dict[int, list[int]] = {}
    for i, prompt in enumerate(row.prompts):
        found.setdefault(prompt.replicate, []).append(i)
    return list(found.values())


def say_what_was_compared(
    context: Context, network: Network, column: str, metric: str, target: Reference | None
) -> None:
    """The note and the protocol of a metric on a network's features."""
    against = "" if target is None else f", against {target.described}"
    context.notes.append(f"{column}: {network.described}{against}.")
    context.scores.protocol[metric] = {
        "column": column,
        "features": network.described,
        "weights_sha256": network.sha256,
        "reference": None if target is None else target.described,
        "reference_images": None if target is None else target.n,
    }
