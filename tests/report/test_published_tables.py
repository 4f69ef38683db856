import math

import pytest

import catome
from experiments.common.errors import ConfigError
from experiments.report.published import (
    PAPER,
    baseline_noise,
    find_published,
    load_checkpoint_lists,
    load_published,
)


def test_the_tables_hold_the_published_rows():
    adaptive = load_published("table_adaptive")
    assert adaptive["fid"].tolist() == [34.23, 33.42, 33.80, 34.30, 35.56, 35.46, 35.28]
    assert adaptive["seconds_per_image"].tolist() == [7.51, 6.92, 6.58, 6.23, 6.10, 6.07, 6.07]
    assert adaptive["threshold"].tolist()[1:] == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    assert math.isnan(adaptive["threshold"][0])
    caching = load_published("table_caching")
    assert caching["fid"].tolist() == [33.66, 36.14, 34.33, 34.05, 34.82, 35.56, 35.20]
    assert caching["seconds_per_image"].tolist() == [7.61, 6.18, 6.13, 6.09, 6.12, 6.19, 6.14]
    tomesd = load_published("tomesd")
    assert tomesd["ratio"].tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert tomesd["gb_per_image"].tolist() == [3.41, 2.99, 2.17, 1.71, 1.26, 0.89, 0.60]
    assert baseline_noise() == (pytest.approx(0.57), pytest.approx(0.10))


def test_what_is_unknown_is_marked_and_everything_has_a_source():
    for name in ("table_adaptive", "table_caching"):
        table = load_published(name)
        for column in ("dtype", "batch_size", "attention"):
            assert set(table[column]) == {"unknown"}
        assert table["source"].str.contains("arXiv 2501.00946").all()
    assert load_published("tomesd")["source"].str.contains("arXiv 2303.17604").all()
    assert "unknown" in (PAPER / "README.md").read_text(encoding="utf-8")


def test_the_checkpoint_lists_are_those_of_the_library():
    lists = load_checkpoint_lists()
    assert {key: tuple(steps) for key, steps in lists.items()} == {
        key: tuple(refresh.steps) for key, refresh in catome.PAPER.items()
    }


@pytest.mark.parametrize(
    ("table", "columns", "is_baseline", "fid"),
    [
        ("table_caching", {"threshold": None, "caching": "—"}, True, 33.66),
        ("table_caching", {"threshold": 0.7, "caching": "config 3"}, False, 34.05),
        ("table_caching", {"threshold": 0.7, "caching": "adaptive"}, False, 35.56),
        ("table_caching", {"threshold": 0.6, "caching": "config 3"}, False, None),
        ("table_caching", {"threshold": 0.7, "caching": "every step"}, False, None),
        ("table_adaptive", {"threshold": 0.9, "caching": "every step"}, False, 33.42),
        ("table_adaptive", {"threshold": 0.9, "caching": "every 5"}, False, None),
        ("table_adaptive", {"threshold": None, "caching": "—"}, True, 34.23),
        ("table_adaptive", {"threshold": None, "ratio": 0.5, "caching": "every step"}, False, None),
        ("tomesd", {"ratio": 0.3, "caching": "every step"}, False, 32.80),
        ("tomesd", {"ratio": 0.3, "caching": "every 5"}, False, None),
    ],
)
def test_a_row_is_matched_by_threshold_and_caching(table, columns, is_baseline, fid):
    found = find_published(load_published(table), columns, is_baseline)
    assert (found and found.fid) == fid


def test_an_unknown_table_is_refused():
    with pytest.raises(ConfigError, match=r"experiment\.published=other: must be one of table_"):
        load_published("other")
