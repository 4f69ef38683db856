import tracemalloc

import numpy as np
import pytest

from experiments.metrics.features import FeatureStore
from experiments.metrics.frechet import gaussian
from experiments.metrics.statistics import moments, read_statistics, write_statistics


def test_chunks_of_any_size_give_numpys_mean_and_covariance():
    # A mean far from zero: sums of squares minus squares of sums would leave no digit.
    features = 1e6 + np.random.default_rng(1).normal(size=(500, 6)) * np.arange(1, 7)
    for size in (1, 7, 499, 500):
        found = moments(features[i : i + size] for i in range(0, 500, size))
        assert found.n == 500
        assert np.allclose(found.mean, features.mean(axis=0), rtol=1e-14)
        assert np.allclose(found.covariance, np.cov(features, rowvar=False), rtol=1e-7, atol=1e-7)


def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    rng = np.random.default_rng(2)
    keys = [f"{i:x}" for i in range(200_000)]
    features = FeatureStore(tmp_path, []).get(
        keys,
        lambda positions: (rng.normal(1, 2, (20_000, 64)).astype(np.float32) for _ in range(10)),
        "synthetic",
    )
    assert features.shape == (200_000, 64)
    tracemalloc.start()
    found = gaussian(features)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.n == 200_000
    assert np.allclose(found.mean, 1, atol=0.05)
    assert (found.factor**2).sum() == pytest.approx(64 * 4, rel=0.01)
    assert peak < 4e6  # bytes; the features are 51 MB in float32
    # The memory-mapped rows are the very ones of the chunks.
    assert np.allclose(found.mean, features.array().mean(axis=0, dtype=np.float64), rtol=1e-9)


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ([np.ones((1, 3))], "at least 2"),
        ([], "at least 2"),
        ([np.ones((2, 3)), np.array([[0, np.inf, 0]])], "not finite"),
    ],
)
def test_what_has_no_covariance_is_refused(chunks, reason):
    with pytest.raises(ValueError, match=reason):
        moments(chunks)


def test_statistics_come_back_as_they_were_written(tmp_path):
    rows = np.random.default_rng(3).normal(size=(50, 5))
    covariance = np.cov(rows, rowvar=False)
    write_statistics(tmp_path / "s.npz", rows.mean(axis=0), covariance)
    found = read_statistics(tmp_path / "s.npz")
    assert found.n is None
    assert (found.mean == rows.mean(axis=0)).all()
    assert np.allclose(found.covariance, covariance, rtol=1e-15)


GOOD = {"mu": np.zeros(3), "sigma": np.eye(3)}


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({**GOOD, "mu": np.array([0, np.nan, 0])}, "holds NaN or infinity"),
        ({**GOOD, "sigma": np.full((3, 3), np.inf)}, "holds NaN or infinity"),
        ({**GOOD, "mu": np.zeros(4)}, r"mu of shape \(4,\) does not fit sigma of \(3, 3\)"),
        ({**GOOD, "sigma": np.arange(9.0).reshape(3, 3)}, "not symmetric"),
        ({"mu": np.zeros(3)}, "holds no mu and sigma"),
        ({**GOOD, "mu": np.array([print], dtype=object)}, "is no .npz of statistics"),
    ],
)
def test_arrays_that_are_no_statistics_are_refused(tmp_path, arrays, reason):
    np.savez(tmp_path / "s.npz", **arrays)
    with pytest.raises(ValueError, match=reason) as caught:
        read_statistics(tmp_path / "s.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "s.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"is no \.npz of statistics"):
        read_statistics(tmp_path / "s.npz")
