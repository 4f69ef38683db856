import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from experiments.metrics.frechet import frechet_distance, gaussian, of_moments, warnings
from experiments.metrics.statistics import Moments


def by_square_root(one, other):
    """Equation 6 of arXiv 1706.08500 as it stands."""
    covariances = [np.cov(x, rowvar=False) for x in (one, other)]
    root = sqrtm(covariances[0] @ covariances[1])
    mean = one.mean(0) - other.mean(0)
    return float(mean @ mean + np.trace(covariances[0] + covariances[1] - 2 * root.real))


@pytest.mark.parametrize(("n", "m", "d"), [(500, 400, 32), (4000, 900, 64), (66, 5000, 64)])
def test_equals_the_matrix_square_root_where_that_is_well_conditioned(n, m, d):
    rng = np.random.default_rng(d)
    one = rng.normal(size=(n, d)) @ (np.eye(d) + 0.1 * rng.normal(size=(d, d)))
    other = 0.3 + rng.normal(size=(m, d)) * rng.uniform(0.5, 2, d)
    assert frechet_distance(gaussian(one), gaussian(other)) == pytest.approx(
        by_square_root(one, other), rel=1e-6
    )


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 12),
    m=st.integers(2, 40),
    d=st.integers(1, 30),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
    seed=st.integers(0, 1000),
)
def test_real_non_negative_and_symmetric_for_any_counts(n, m, d, scale, seed):
    rng = np.random.default_rng(seed)
    one = gaussian(scale * rng.normal(size=(n, d)))
    other = gaussian(scale * rng.normal(size=(m, d)))
    there, back = frechet_distance(one, other), frechet_distance(other, one)
    assert isinstance(there, float)
    assert there >= 0
    assert there == pytest.approx(back, rel=1e-9, abs=1e-12 * scale**2)


@pytest.mark.parametrize("n", [5, 200])
def test_a_set_has_no_distance_to_itself_and_a_shift_adds_its_square(n):
    features = np.random.default_rng(0).normal(size=(n, 50))
    assert frechet_distance(gaussian(features), gaussian(features)) < 1e-10
    shifted = gaussian(features + 0.5)
    assert frechet_distance(gaussian(features), shifted) == pytest.approx(50 * 0.25, rel=1e-9)


def test_n_below_d_agrees_with_the_full_covariance_form():
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(8, 20)), rng.normal(size=(6, 20)) * 2
    # Adding 1e-9 of the identity makes the square root possible; its error bounds the tolerance.
    covariances = [np.cov(x, rowvar=False) + 1e-9 * np.eye(20) for x in (one, other)]
    values = np.linalg.eigvals(covariances[0] @ covariances[1]).real.clip(0)
    mean = one.mean(0) - other.mean(0)
    expected = mean @ mean + np.trace(covariances[0] + covariances[1]) - 2 * np.sqrt(values).sum()
    assert frechet_distance(gaussian(one), gaussian(other)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (np.zeros((1, 4)), "at least 2"),
        (np.array([[1.0, np.nan], [0, 1]]), "not finite"),
    ],
)
def test_what_has_no_covariance_is_refused(features, reason):
    with pytest.raises(ValueError, match=reason):
        gaussian(features)


def test_other_numbers_of_features_cannot_be_compared():
    with pytest.raises(ValueError, match=r"3 and 4 features"):
        frechet_distance(gaussian(np.eye(3)), gaussian(np.eye(4)))


def test_few_images_are_warned_about_with_their_number():
    assert "rank-deficient" in warnings("FID", 2047, 2048)[0]
    assert "2047" in warnings("FID", 2047, 2048)[0]
    assert "n = 100 " in warnings("FD", 100, 64)[0]
    assert "rank" not in warnings("FD", 100, 64)[0]
    assert warnings("FID", 5000, 2048) == []


def test_features_that_never_vary_are_no_obstacle():
    # No Cholesky factor exists: the factor comes from eigenvalues.
    rng = np.random.default_rng(7)
    one, other = (rng.normal(size=(300, 12)) for _ in range(2))
    expected = frechet_distance(gaussian(one), gaussian(other))
    dead = [np.insert(x, 5, 3.0, axis=1) for x in (one, other)]
    assert frechet_distance(*map(gaussian, dead)) == pytest.approx(expected, rel=1e-9)
    repeated = [np.concatenate([x, x[:, :4] @ np.ones((4, 1))], axis=1) for x in (one, other)]
    assert frechet_distance(gaussian(repeated[0]), gaussian(repeated[0])) < 1e-6
    assert frechet_distance(*map(gaussian, repeated)) > expected


def test_moments_and_features_give_the_same_distance():
    rng = np.random.default_rng(8)
    one, other = rng.normal(size=(200, 10)), rng.normal(size=(9, 10)) + 1
    known = of_moments(Moments(None, other.mean(axis=0), np.cov(other, rowvar=False)))
    expected = frechet_distance(gaussian(one), gaussian(other))
    assert frechet_distance(gaussian(one), known) == pytest.approx(expected, rel=1e-7)


@pytest.mark.long
def test_three_times_faster_than_the_matrix_square_root_at_2048_features():
    rng = np.random.default_rng(9)
    sets = [rng.normal(size=(n, 2048)) * rng.uniform(0.2, 2, 2048) for n in (4096, 5000)]
    covariances = [np.cov(x, rowvar=False) for x in sets]
    means = [x.mean(axis=0) for x in sets]
    start = time.process_time()
    ours = frechet_distance(
        *(of_moments(Moments(None, m, c)) for m, c in zip(means, covariances, strict=True))
    )
    seconds = time.process_time() - start
    start = time.process_time()
    root = sqrtm(covariances[0] @ covariances[1])
    theirs = time.process_time() - start
    shift = means[0] - means[1]
    expected = shift @ shift + np.trace(covariances[0] + covariances[1] - 2 * root.real)
    assert ours == pytest.approx(expected, rel=1e-6)
    assert theirs >= 3 * seconds, f"{seconds:.1f} s against {theirs:.1f} s"
