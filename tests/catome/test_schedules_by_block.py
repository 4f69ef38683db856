"""Schedules for each block, and lists that know what they were made for."""

import copy
import json

import pytest

from catome import ByBlock, Checkpoints, EveryStep, Interval, Ratio, TokenMerging, apply

BLOCKS = [
    "down_blocks.0.attentions.0.transformer_blocks.0",
    "up_blocks.1.attentions.0.transformer_blocks.0",
    "up_blocks.1.attentions.1.transformer_blocks.0",
]


def test_each_block_matches_when_its_own_schedule_says(pipe, paint):
    schedules = {BLOCKS[0]: Checkpoints([0, 3]), BLOCKS[1]: Interval(2)}
    method = TokenMerging(Ratio(0.5), ByBlock(schedules, otherwise=Checkpoints([0])))
    with apply(pipe, method, record=True) as handle:
        paint(pipe)
    matched = {b: [r.step for r in handle.records if r.block == b and r.matched] for b in BLOCKS}
    assert matched == {BLOCKS[0]: [0, 3], BLOCKS[1]: [0, 2, 4], BLOCKS[2]: [0]}
    assert [method.matches_at(s) for s in range(5)] == [True, False, True, True, True]


def test_blocks_that_are_not_there_are_refused(pipe):
    method = TokenMerging(Ratio(0.5), ByBlock({"mid_block": Interval(2)}))
    with pytest.raises(ValueError, match=f"schedules=mid_block: no such block.*{BLOCKS[2]}"):
        apply(pipe, method)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByBlock({}), "schedules={}: must be {block name"),
        (lambda: ByBlock({"a": 5}), "schedules="),
        (lambda: ByBlock([Interval(2)]), "schedules="),
        (lambda: ByBlock({"a": Interval(2)}, otherwise=3), "otherwise=3: must be"),
        (lambda: Checkpoints([0], evaluations=0), "evaluations=0: must be an integer >= 1"),
        (lambda: Checkpoints([0, 2]).rescaled(9), "evaluations=None: must be known"),
    ],
)
def test_bad_schedules(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_patched_pipe_with_schedules_by_block_can_be_copied(pipe, paint):
    apply(pipe, TokenMerging(Ratio(0.5), ByBlock({BLOCKS[0]: Checkpoints([0])})))
    assert (paint(copy.deepcopy(pipe)) == paint(pipe)).all()


def test_descriptions_tell_schedules_apart_but_not_what_they_were_made_for():
    def text(refresh):
        return json.dumps(TokenMerging(Ratio(0.5), refresh).describe(), sort_keys=True)

    one = ByBlock({"a": Checkpoints([0, 5]), "b": EveryStep()})
    other = ByBlock({"a": Checkpoints([0, 6]), "b": EveryStep()})
    assert text(one) != text(other)
    assert text(one) == text(ByBlock({"b": EveryStep(), "a": Checkpoints([0, 5], 51)}))
    assert text(Checkpoints([0, 5], 51)) == text(Checkpoints([0, 5]))


def test_unreached_entries_of_all_blocks():
    method = TokenMerging(Ratio(0.5), ByBlock({"a": Checkpoints([0, 60]), "b": Checkpoints([55])}))
    assert method.unreached(51) == (55, 60)
    assert method.unreached(56) == (60,)


def test_rescaling_keeps_the_ends():
    found = Checkpoints([0, 10, 25, 26, 50], evaluations=51)
    assert found.rescaled(51) == found
    assert found.rescaled(101) == Checkpoints([0, 20, 50, 52, 100], 101)
    assert found.rescaled(11) == Checkpoints([0, 2, 5, 10], 11)
    assert found.rescaled(1) == Checkpoints([0], 1)
