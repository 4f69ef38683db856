"""How sure a number is: intervals of means, of paired differences, of medians, of distances.

What varies is the prompt: a bootstrap draws prompts, and all images of a prompt (its replicates)
come along. Fréchet distances are not resampled, duplicates bias them; their intervals come from
replicates with other seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.95
RESAMPLES = 2000
CHUNK = 100  # resamples at a time; bounds the memory at 30,000 prompts


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval at `level`; `n` is what it was estimated from."""

    value: float
    low: float
    high: float
    n: int
    level: float = LEVEL

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    def excludes(self, value: float) -> bool:
        return not self.low <= value <= self.high


def bootstrap_means(
    values: np.ndarray, clusters: np.ndarray, seed: int = 0, level: float = LEVEL
) -> list[Interval | None]:
    """Intervals of the means of the columns, all from the same draws of clusters.

    Expanded percentile bootstrap (Hesterberg 2015, arXiv 1411.5279, section 4): the percentiles
    are widened as Student's t is against the normal, without which few clusters cover too little.

    Args:
        values: (n, m); NaN is left out of its column.
        clusters: (n,) what is drawn together, for instance the prompt.

    Returns:
        m intervals; None where a column has values of fewer than 2 clusters.
    """
    values = np.asarray(values, np.float64)
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    count, columns = index.max(initial=-1) + 1, values.shape[1]
    present = ~np.isnan(values)
    sums, sizes = np.zeros((count, columns)), np.zeros((count, columns))
    np.add.at(sums, index, np.where(present, values, 0))
    np.add.at(sizes, index, present)
    occupied = (sizes > 0).sum(axis=0)

    rng = np.random.default_rng(seed)
    drawn = np.empty((RESAMPLES, columns))
    with np.errstate(invalid="ignore", divide="ignore"):
        for start in range(0, RESAMPLES, CHUNK):
            size = min(CHUNK, RESAMPLES - start)
            weights = rng.multinomial(count, np.full(count, 1 / count), size) if count else None
            if weights is not None:
                drawn[start : start + size] = (weights @ sums) / (weights @ sizes)
        means = sums.sum(axis=0) / sizes.sum(axis=0)
    found: list[Interval | None] = []
    for i, n in enumerate(occupied):
        if n < 2:
            found.append(None)
            continue
        # The quantile at which the normal has Student's tail, corrected for the divisor n.
        z = stats.t.ppf((1 + level) / 2, n - 1) * math.sqrt(n / (n - 1))
        tail = stats.norm.sf(z)
        low, high = np.nanquantile(drawn[:, i], [tail, 1 - tail])
        found.append(Interval(means[i], low, high, int(n), level))
    return found


def by_row(
    per_image: pd.DataFrame, metrics: list[str], baseline: str | None, seed: int = 0
) -> tuple[dict, dict]:
    """Intervals of every row's means, and of its paired differences from the baseline row.

    Args:
        per_image: lines with row, prompt, seed, source and the metrics.
        metrics: columns to summarise.
        baseline: the row to subtract, image by image of the same prompt and seed; None for none.

    Returns:
        Two dicts {row: {metric: Interval}}: means, and differences row minus baseline. A row
        without images in common with the baseline has no differences.
    """
    image = ["prompt", "seed"]
    wide = per_image.drop_duplicates(["row", *image]).set_index(["row", *image])
    means: dict[str, dict[str, Interval]] = {}
    differences: dict[str, dict[str, Interval]] = {}
    rows = list(per_image["row"].unique())
    other = wide.loc[baseline][metrics].astype(float) if baseline in rows else None
    for row in rows:
        own = wide.loc[row][metrics].astype(float)
        prompts = own.index.get_level_values("prompt")
        means[row] = _named(metrics, bootstrap_means(own.to_numpy(), prompts, seed))
        if other is None or row == baseline:
            continue
        paired = (own - other).loc[own.index.intersection(other.index)]
        prompts = paired.index.get_level_values("prompt")
        differences[row] = _named(metrics, bootstrap_means(paired.to_numpy(), prompts, seed))
    return means, differences


def _named(metrics: list[str], found: list[Interval | None]) -> dict[str, Interval]:
    return {name: x for name, x in zip(metrics, found, strict=True) if x is not None}


def pairs(per_image: pd.DataFrame, metric: str, one: str, other: str) -> pd.Series:
    """Differences one minus other by prompt: means over images of the same prompt and seed."""
    wide = per_image.drop_duplicates(["row", "prompt", "seed"]).set_index(["row", "prompt", "seed"])
    rows = wide[metric].astype(float)
    return (rows.loc[one] - rows.loc[other]).dropna().groupby("prompt").mean()


def replicates_interval(values: list[float], level: float = LEVEL) -> Interval | None:
    """Student's interval of the mean of a figure that was computed once a replicate."""
    n = len(values)
    if n < 2:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(n)
    reach = stats.t.ppf((1 + level) / 2, n - 1) * error
    return Interval(mean, mean - reach, mean + reach, n, level)


def median_interval(values: list[float], level: float = LEVEL) -> Interval:
    """The median between two order statistics, whatever the distribution.

    The narrowest symmetric pair that covers the median with at least `level`; with fewer than 6
    values not even the extremes do: they are returned with the coverage that they have, in
    `level`.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    n = len(ordered)
    # P(the k smallest values lie below the median and so on): a binomial's tail on both sides.
    k = 0
    while k + 1 <= (n - 1) // 2 and 1 - 2 * stats.binom.cdf(k + 1, n, 0.5) >= level:
        k += 1
    covered = float(1 - 2 * stats.binom.cdf(k, n, 0.5))
    middle = float(np.median(ordered))
    return Interval(middle, float(ordered[k]), float(ordered[n - 1 - k]), n, max(covered, 0.0))


def images_needed(
    spread: float, difference: float, power: float = 0.8, level: float = LEVEL
) -> int:
    """Prompts that show a paired difference of that size with probability `power`.

    Args:
        spread: standard deviation of the differences between two rows' images of a prompt.
        difference: to be told from zero by a two-sided test at `level`.
    """
    z = stats.norm.ppf((1 + level) / 2) + stats.norm.ppf(power)
    return max(2, math.ceil((z * spread / difference) ** 2))
