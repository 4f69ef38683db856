"""The Fréchet distance between two Gaussians, in float64 and without a matrix square root.

Equation 6 of Heusel et al. 2017 (arXiv 1706.08500):

    d² = |μ1 - μ2|² + tr Σ1 + tr Σ2 - 2 tr (Σ1 Σ2)^½

With Σi = Fiᵀ Fi, the last trace is the sum of the singular values of F1 F2ᵀ: real and
non-negative whatever the rank, also for fewer images than features, and without the loss of half
the digits that a square root of eigenvalues near zero means. F is Cholesky's factor; for fewer
images than features the centred features themselves; and from eigenvalues where neither exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.metrics.features import CHUNK, Features
from experiments.metrics.statistics import Moments, moments


@dataclass(frozen=True)
class Gaussian:
    """`n` samples' mean (d,) and a factor (rank, d) with factorᵀ factor = covariance."""

    n: int | None
    mean: np.ndarray
    factor: np.ndarray


def gaussian(features: Features | np.ndarray) -> Gaussian:
    """Of (n, d) features; where n > d, memory grows with d only.

    Raises:
        ValueError: fewer than 2 samples, or values that are not finite.
    """
    n, d = features.shape
    if n > d:
        return of_moments(moments(_chunks(features)))
    rows = np.concatenate([np.asarray(c, np.float64) for c in _chunks(features)] or [np.empty(0)])
    if n < 2:
        raise ValueError(f"a covariance needs at least 2 images, not {n}")
    if not np.isfinite(rows).all():
        raise ValueError("features are not finite")
    mean = rows.mean(axis=0)
    return Gaussian(n, mean, (rows - mean) / np.sqrt(n - 1))


def of_moments(given: Moments) -> Gaussian:
    """The same from mean and covariance."""
    try:
        factor = np.linalg.cholesky(given.covariance).T
    except np.linalg.LinAlgError:  # rank-deficient, such as a feature that is always zero
        values, vectors = np.linalg.eigh(given.covariance)
        kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
        factor = np.sqrt(values[kept, None]) * vectors[:, kept].T
    return Gaussian(given.n, given.mean, factor)


def frechet_distance(one: Gaussian, other: Gaussian) -> float:
    """d² as above. ValueError where the numbers of features differ."""
    if one.mean.shape != other.mean.shape:
        raise ValueError(f"{one.mean.size} and {other.mean.size} features cannot be compared")
    overlap = np.linalg.svd(one.factor @ other.factor.T, compute_uv=False).sum()
    spread = (one.factor**2).sum() + (other.factor**2).sum()
    # Rounding can leave -1e-15 for a set compared with itself.
    return max(0.0, float(((one.mean - other.mean) ** 2).sum() + spread - 2 * overlap))


def warnings(column: str, n: int, features: int) -> list[str]:
    """What to print beside a distance from `n` images."""
    if n <= features:
        return [
            f"Warning: {column} from n = {n} images in {features} dimensions: the covariance is "
            "rank-deficient and the distance biased upwards; compare it only at equal n."
        ]
    if n < 2048:
        return [
            f"Warning: {column} from n = {n} images, fewer than 2,048, is biased upwards; "
            "compare it only at equal n."
        ]
    return []


def _chunks(features: Features | np.ndarray):
    if isinstance(features, Features):
        return features.chunks()
    return (features[start : start + CHUNK] for start in range(0, len(features), CHUNK))
