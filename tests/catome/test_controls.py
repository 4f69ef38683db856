"""Pairs that do not look at the tokens, and matching that merges nothing."""

import pytest
import torch

from catome import Interval, Ratio, Recorder, Threshold, TokenMerging, apply, destination_tokens
from catome.matching import blind_pairs, match_blindly, pattern_generator, source_tokens

GRIDS = [(8, 8, 2), (7, 9, 2), (9, 10, 3), (6, 11, 4)]


def tokens_of(height, width, stride):
    destinations = destination_tokens(height, width, stride, pattern_generator(3, 1, "a"))
    return source_tokens(height * width, destinations), destinations


@pytest.mark.parametrize("grid", GRIDS)
def test_pairs_in_space_are_the_nearest_ones_first(grid):
    _height, width, _stride = grid
    sources, destinations = tokens_of(*grid)
    nearest, order = blind_pairs(sources, destinations, width, "space", pattern_generator(0, 0, ""))

    def squared(one, other):
        return (one // width - other // width) ** 2 + (one % width - other % width) ** 2

    reached = squared(sources, destinations[nearest])
    assert torch.equal(reached, squared(sources[:, None], destinations).min(dim=1).values)
    assert (reached[order].diff() >= 0).all()
    assert torch.equal(order.sort().values, torch.arange(len(sources)))


def test_long_grids_are_measured_in_parts(monkeypatch):
    sources, destinations = tokens_of(16, 16, 2)
    whole = blind_pairs(sources, destinations, 16, "space", pattern_generator(0, 0, ""))
    monkeypatch.setattr("catome.matching.SCORES_AT_ONCE", 100)
    parts = blind_pairs(sources, destinations, 16, "space", pattern_generator(0, 0, ""))
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_random_pairs_are_uniform():
    sources, destinations = tokens_of(64, 64, 2)
    nearest, order = blind_pairs(sources, destinations, 64, "random", pattern_generator(0, 0, ""))
    assert nearest.bincount(minlength=1024).max() < 16  # 3 on average
    assert torch.corrcoef(torch.stack([order, torch.arange(3072)]).float())[0, 1].abs() < 0.1
    other = blind_pairs(sources, destinations, 64, "random", pattern_generator(1, 0, ""))[0]
    assert (other == nearest).float().mean() < 0.01


@pytest.mark.parametrize("pairing", ["random", "space"])
def test_a_blind_map_merges_the_ratio_and_ignores_the_tokens(pairing):
    destinations = destination_tokens(8, 8, 2)
    x = torch.randn(2, 64, 4, generator=torch.Generator().manual_seed(0))

    def made(x):
        generator = pattern_generator(0, 0, "")
        return match_blindly(x, destinations, Ratio(0.25), 8, pairing, generator)

    assert made(x).count == 16
    assert torch.equal(made(x).assignment, made(-x).assignment)
    assert torch.equal(made(x).assignment[0], made(x).assignment[1])
    short = made(x).merge(x)
    assert short.shape == (2, 48, 4)
    assert made(x).unmerge(short).shape == x.shape


@pytest.mark.parametrize("pairing", ["random", "space"])
def test_a_model_with_blind_pairs(unet, evaluate, pairing):
    untouched = evaluate(unet)
    record = Recorder(similarities=True, pairs=True)
    method = TokenMerging(Ratio(0.5), Interval(2), pairing=pairing)
    with apply(unet, method, record=record) as handle:
        changed = evaluate(unet)
        evaluate(unet)
        assert {(r.step, r.matched) for r in handle.records} == {(0, True), (1, False)}
    assert not torch.equal(changed, untouched)
    assert {r.tokens_out for r in record.records} == {(32, 32)}
    first = record.records[0]
    assert first.similarities is None
    assert (first.pairs != torch.arange(64)).sum(1).tolist() == [32, 32]
    with apply(unet, TokenMerging(Ratio(0.5))):
        assert not torch.equal(evaluate(unet), changed)


def test_merging_in_no_module_observes_the_baseline(unet, evaluate):
    untouched = evaluate(unet)
    record = Recorder(similarities=True, pairs=True)
    with apply(unet, TokenMerging(Threshold(0.5), merge=()), record=record):
        assert torch.equal(evaluate(unet), untouched)
    with apply(unet, TokenMerging(Threshold(0.5)), record=Recorder(pairs=True)) as merging:
        evaluate(unet)
    seen, merged = record.records[0], merging.records[0]  # the first block sees the same tokens
    assert seen.tokens_out == merged.tokens_out
    assert torch.equal(seen.pairs, merged.pairs)
    assert 0 < record.share_merged() < 1
    passing = (seen.similarities >= 0.5).sum(1)
    assert passing.tolist() == [64 - n for n in seen.tokens_out]
