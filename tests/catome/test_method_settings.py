"""Settings: what is allowed, what the published lists are, and errors of one line."""

import json
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import catome
from catome import PAPER, Checkpoints, EveryStep, Interval, Ratio, Threshold, TokenMerging


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ratio(1.2), "ratio=1.2: must be from 0 to 1"),
        (lambda: Ratio(-0.1), "ratio=-0.1: must be from 0 to 1"),
        (lambda: Ratio("half"), "ratio='half': must be from 0 to 1"),
        (lambda: Ratio(float("nan")), "ratio=nan: must be from 0 to 1"),
        (lambda: Ratio(True), "ratio=True: must be from 0 to 1"),
        (lambda: Threshold(-1.5), "threshold=-1.5: must be a cosine"),
        (lambda: Threshold(None), "threshold=None: must be a cosine"),
        (lambda: Interval(0), "interval=0: must be an integer >= 1"),
        (lambda: Interval(-3), "interval=-3: must be an integer >= 1"),
        (lambda: Interval(2.5), "interval=2.5: must be an integer >= 1"),
        (lambda: Checkpoints([5, 0]), "checkpoints=[5, 0]: must be a list of integers >= 0"),
        (lambda: Checkpoints([0, 0]), "checkpoints=[0, 0]: must be a list of integers >= 0"),
        (lambda: Checkpoints([-1, 3]), "checkpoints=[-1, 3]: must be"),
        (lambda: Checkpoints([0, 1.5]), "checkpoints=[0, 1.5]: must be"),
        (lambda: Checkpoints([False, True]), "checkpoints=[False, True]: must be"),
        (lambda: Checkpoints([]), "checkpoints=[]: must be"),
        (lambda: Checkpoints("123"), "checkpoints='123': must be"),
        (lambda: Checkpoints(7), "checkpoints=7: must be"),
        (lambda: TokenMerging(0.5), "select=0.5: must be Ratio or Threshold"),
        (lambda: TokenMerging(Ratio(0.5), 5), "refresh=5: must be EveryStep, Interval, Ch"),
        (lambda: TokenMerging(Ratio(0.5), stride=1), "stride=1: must be an integer >= 2"),
        (lambda: TokenMerging(Ratio(0.5), max_downsample=0), "max_downsample=0: must be an"),
        (lambda: TokenMerging(Ratio(0.5), seed=-1), "seed=-1: must be an integer >= 0"),
        (lambda: TokenMerging(Ratio(0.5), destinations="grid"), "destinations='grid': must be"),
        (lambda: TokenMerging(Ratio(0.5), count="row"), "count='row': must be 'image' or 'batch'"),
        (lambda: TokenMerging(Ratio(0.5), cache="stale"), "cache='stale': must be 'fresh' or"),
        (lambda: TokenMerging(Ratio(0.5), merge=("mlp",)), "merge=('mlp',): must be some of"),
        (lambda: TokenMerging(Ratio(0.5), merge="attn1"), "merge='attn1': must be some of"),
        (lambda: TokenMerging(Ratio(0.5), merge=("ff", "ff")), "merge=('ff', 'ff'): must be"),
        (
            lambda: TokenMerging(Ratio(0.5), Interval(5), cache="official"),
            "cache='official': must be 'fresh' with Interval ('official' needs Checkpoints)",
        ),
        (lambda: TokenMerging(Ratio(0.5), pairing="x"), "pairing='x': must be 'similarity' or"),
        (lambda: TokenMerging(Ratio(0.5), window=3), "window=3: must be a multiple of stride=2"),
        (lambda: TokenMerging(Ratio(0.5), window=0), "window=0: must be a multiple of stride=2"),
        (
            lambda: TokenMerging(Ratio(0.5), window=8, pairing="space"),
            "window=8: must be None with pairing='space'",
        ),
        (
            lambda: TokenMerging(Threshold(0.5), pairing="random"),
            "pairing='random': must be 'similarity' with Threshold (the others need Ratio)",
        ),
    ],
)
def test_bad_settings_end_in_one_line(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_unknown_keys_are_refused():
    with pytest.raises(TypeError, match="strid"):
        TokenMerging(Ratio(0.5), strid=2)


def test_edges_that_are_allowed():
    assert Ratio(0).merges_nothing
    assert Threshold(1).merges_nothing
    assert Threshold(1.5).merges_nothing
    assert not Ratio(1).merges_nothing
    assert not Threshold(-1).merges_nothing
    assert Checkpoints(np.array([0, 3])).steps == (0, 3)
    assert TokenMerging(Ratio(np.float32(0.5)), merge=["attn1", "ff"]).merge == ("attn1", "ff")


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        TokenMerging(Ratio(0.5)).stride = 3


def test_schedules_count_from_zero():
    def due(refresh, steps=12):
        return [s for s in range(steps) if TokenMerging(Ratio(0.5), refresh).matches_at(s)]

    assert due(EveryStep()) == list(range(12))
    assert due(Interval(5)) == [0, 5, 10]
    assert due(Checkpoints([0, 3, 11, 40])) == [0, 3, 11]


def test_the_official_clock_counts_from_one():
    method = TokenMerging(Threshold(0.7), PAPER["config3"], cache="official")
    steps = [s for s in range(51) if method.matches_at(s)]
    # The second image's matches, which no empty cache forces.
    assert steps == [7, 10, 12, 19, 24, 29, 34, 44, 45, 46, 47, 48]


PUBLISHED = {
    "config1": "0 1 2 3 5 10 15 25 35",
    "config2": "0 10 11 12 15 20 25 30 35 45",
    "config3": "0 8 11 13 20 25 30 35 45 46 47 48 49",
    "config4": "0 9 13 14 15 28 29 32 36 45",
    "adaptive": "0 1 5 7 10 12 15 35 40 45 46 47 48 49 50 51",
    "every5": "0 5 10 15 20 25 30 35 40 45 50",
}


def test_published_lists():
    assert {k: " ".join(map(str, c.steps)) for k, c in PAPER.items()} == PUBLISHED
    every5 = TokenMerging(Ratio(0.5), PAPER["every5"])
    interval = TokenMerging(Ratio(0.5), Interval(5))
    assert all(every5.matches_at(s) == interval.matches_at(s) for s in range(51))


def test_checkpoints_beyond_the_last_evaluation_are_told():
    method = TokenMerging(Ratio(0.5), PAPER["adaptive"])
    assert method.unreached(evaluations=51) == (51,)
    assert method.unreached(evaluations=21) == (35, 40, 45, 46, 47, 48, 49, 50, 51)
    official = TokenMerging(Ratio(0.5), PAPER["adaptive"], cache="official")
    assert official.unreached(evaluations=51) == ()
    assert TokenMerging(Ratio(0.5), Interval(100)).unreached(51) == ()


def test_a_description_is_json_and_tells_methods_apart():
    methods = [
        TokenMerging(Ratio(0.5)),
        TokenMerging(Threshold(0.5)),
        TokenMerging(Threshold(0.5), Interval(5)),
        TokenMerging(Threshold(0.5), Checkpoints([5])),
        TokenMerging(Threshold(0.5), Checkpoints([5]), cache="official"),
        TokenMerging(Ratio(0.5), merge=("attn1", "ff")),
        TokenMerging(Ratio(0.5), merge=()),
        TokenMerging(Ratio(0.5), pairing="space"),
        TokenMerging(Ratio(0.5), window=4),
    ]
    texts = [json.dumps(m.describe(), sort_keys=True) for m in methods]
    assert len(set(texts)) == len(methods)
    assert json.loads(texts[3])["refresh"] == {"kind": "Checkpoints", "steps": [5]}
    assert json.loads(texts[5])["merge"] == ["attn1", "ff"]


def test_version():
    assert catome.version == catome.__version__
    assert all(part.isdigit() for part in catome.version.split("."))
