"""Intervals cover what they say they cover."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.common.uncertainty import (
    bootstrap_means,
    by_row,
    images_needed,
    median_interval,
    replicates_interval,
)


@pytest.mark.parametrize("prompts", [5, 30])
def test_bootstrap_covers_the_mean_of_gaussian_images(prompts):
    rng = np.random.default_rng(0)
    trials, replicates = 400, 2
    # One column a trial: prompts differ, and so do the replicates of a prompt.
    values = rng.normal(0, 1, (prompts, 1, trials)) + rng.normal(
        0, 1, (prompts, replicates, trials)
    )
    clusters = np.repeat(np.arange(prompts), replicates)
    found = bootstrap_means(values.reshape(-1, trials), clusters)
    covered = np.mean([not interval.excludes(0) for interval in found])
    assert 0.92 <= covered <= 0.98


def test_replicates_of_a_prompt_are_not_taken_for_independent_images():
    rng = np.random.default_rng(1)
    one = rng.normal(size=(20, 1))
    copied = np.repeat(one, 8, axis=0)
    (alone,) = bootstrap_means(one, np.arange(20))
    (together,) = bootstrap_means(copied, np.repeat(np.arange(20), 8))
    assert together.half == pytest.approx(alone.half)
    (wrong,) = bootstrap_means(copied, np.arange(160))
    assert wrong.half < 0.5 * alone.half


def test_columns_have_their_own_gaps():
    values = np.array([[1.0, np.nan], [2.0, 5.0], [3.0, np.nan]])
    first, second = bootstrap_means(values, np.arange(3))
    assert first.value == 2.0
    assert first.n == 3
    assert second is None


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(2).normal(size=(40, 1))
    assert bootstrap_means(values, np.arange(40), 3) == bootstrap_means(values, np.arange(40), 3)
    assert bootstrap_means(values, np.arange(40), 3) != bootstrap_means(values, np.arange(40), 4)


def table(rows: dict[str, np.ndarray]) -> pd.DataFrame:
    lines = [
        {"row": row, "prompt": f"p{i}", "seed": i, "source": "", "clip": value}
        for row, values in rows.items()
        for i, value in enumerate(values)
    ]
    return pd.DataFrame(lines)


def test_paired_differences_are_far_narrower_than_the_means():
    rng = np.random.default_rng(3)
    base = rng.normal(80, 5, 50)
    rows = {"baseline": base, "same": base + rng.normal(0, 0.1, 50), "worse": base - 0.5}
    means, differences = by_row(table(rows), ["clip"], "baseline")
    assert means["same"]["clip"].value == pytest.approx(rows["same"].mean())
    assert differences["same"]["clip"].half < 0.1 * means["same"]["clip"].half
    assert not differences["same"]["clip"].excludes(0)
    assert differences["worse"]["clip"].excludes(0)
    assert "baseline" not in differences


def test_rows_with_other_seeds_have_no_paired_differences():
    frame = table({"baseline": np.arange(5.0), "other": np.arange(5.0)})
    frame.loc[frame["row"] == "other", "seed"] += 1000
    assert by_row(frame, ["clip"], "baseline")[1]["other"] == {}


@pytest.mark.parametrize(("n", "low", "high"), [(6, 0, 5), (20, 5, 14), (100, 39, 60)])
def test_median_interval_is_the_classical_pair_of_order_statistics(n, low, high):
    interval = median_interval(list(np.random.default_rng(0).permutation(n)))
    assert (interval.low, interval.high) == (low, high)
    assert interval.level >= 0.95


def test_median_of_few_values_says_how_little_its_range_covers():
    interval = median_interval([1.3, 1.2, 1.25])
    assert (interval.value, interval.low, interval.high) == (1.25, 1.2, 1.3)
    assert interval.level == pytest.approx(0.75)


def test_replicates_give_students_interval():
    values = [10.0, 11.0, 12.0]
    interval = replicates_interval(values)
    low, high = stats.t.interval(0.95, 2, loc=11, scale=stats.sem(values))
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))
    assert replicates_interval([1.0]) is None


def test_power_holds_in_simulation():
    spread, difference = 2.0, 0.5
    n = images_needed(spread, difference)
    samples = np.random.default_rng(4).normal(difference, spread, (2000, n))
    seen = stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05
    assert seen.mean() == pytest.approx(0.8, abs=0.03)
