"""Mean and covariance of any number of feature vectors, and files that hold them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.common.errors import first_line
from experiments.common.files import write_atomically


@dataclass(frozen=True)
class Moments:
    """Mean (d,) and covariance (d, d), divisor n - 1, in float64; `n` is None if unknown."""

    n: int | None
    mean: np.ndarray
    covariance: np.ndarray


def moments(chunks: Iterable[np.ndarray]) -> Moments:
    """Moments of the rows of all chunks, (k, d) each, with one chunk in memory at a time.

    Chan, Golub and LeVeque 1983: sums of squares about each chunk's own mean, joined by

        M = M1 + M2 + (m2 - m1)(m2 - m1)ᵀ n1 n2 / (n1 + n2)

    so that a mean far from zero costs no digits.

    Raises:
        ValueError: fewer than 2 rows, or values that are not finite.
    """
    n, mean, squares = 0, None, None
    for chunk in chunks:
        if len(chunk) == 0:
            continue
        chunk = np.asarray(chunk, dtype=np.float64)
        if not np.isfinite(chunk).all():
            raise ValueError("features are not finite")
        centre = chunk.mean(axis=0)
        centred = chunk - centre
        if mean is None:
            mean, squares = np.zeros_like(centre), np.zeros((len(centre), len(centre)))
        total = n + len(chunk)
        shift = centre - mean
        squares += centred.T @ centred
        if n:
            squares += np.outer(shift, shift * (n * len(chunk) / total))
        mean += shift * (len(chunk) / total)
        n = total
    if n < 2:
        raise ValueError(f"a covariance needs at least 2 images, not {n}")
    return Moments(n, mean, squares / (n - 1))


def write_statistics(path: Path, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Write `mu` and `sigma` as pytorch-fid's --save-stats does; it reads them as well."""

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez_compressed(file, mu=mean, sigma=covariance)

    write_atomically(path, write)


def read_statistics(path: Path) -> Moments:
    """Read a `.npz` of pytorch-fid or of `write_statistics`; pickled content is refused.

    Raises:
        ValueError: no such file, or arrays that cannot be a mean and a covariance.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            mean, covariance = (np.asarray(file[k], dtype=np.float64) for k in ("mu", "sigma"))
    except KeyError as error:
        raise ValueError(f"holds no mu and sigma ({error.args[0]})") from error
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"is no .npz of statistics ({first_line(error)})") from error
    if mean.ndim != 1 or covariance.shape != (mean.size, mean.size):
        raise ValueError(f"mu of shape {mean.shape} does not fit sigma of {covariance.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise ValueError("mu or sigma holds NaN or infinity")
    if not np.allclose(covariance, covariance.T, rtol=1e-5, atol=1e-8 * np.abs(covariance).max()):
        raise ValueError("sigma is not symmetric")
    return Moments(None, mean, (covariance + covariance.T) / 2)
