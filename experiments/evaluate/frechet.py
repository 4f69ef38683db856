"""The Fréchet distance between two Gaussians, in float64 and without a matrix square root.

Equation 6 of Heusel et al. 2017 (arXiv 1706.08500):

    d² = |μ1 - μ2|² + tr Σ1 + tr Σ2 - 2 tr (Σ1 Σ2)^½

With Σi = Fiᵀ Fi, the last trace is the sum of the singular values of F1 F2ᵀ: real and
non-negative whatever the rank, also for fewer images than features, and without the loss of half
the digits that a square root of eigenvalues near zero means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Gaussian:
    """`n` samples' mean (d,) and a factor (min(n, d), d) with factorᵀ factor = covariance."""

    n: int
    mean: np.ndarray
    factor: np.ndarray


def gaussian(features: np.ndarray) -> Gaussian:
    """Mean and factor of the covariance (divisor n - 1) of (n, d) features.

    Raises:
        ValueError: fewer than 2 samples, or values that are not finite.
    """
    features = np.asarray(features, dtype=np.float64)
    n, d = features.shape
    if n < 2:
        raise ValueError(f"a covariance needs at least 2 images, not {n}")
    if not np.isfinite(features).all():
        raise ValueError("features are not finite")
    mean = features.mean(axis=0)
    factor = (features - mean) / np.sqrt(n - 1)
    if n > d:
        factor = np.linalg.qr(factor, mode="r")
    return Gaussian(n, mean, factor)


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
