"""Destination patterns and similarities."""

import random
import re
from collections import Counter

import numpy as np
import pytest
import torch

from catome import Ratio, Threshold, destination_tokens, match
from catome.matching import (
    match_images,
    nearest_destinations,
    nearest_in_tiles,
    pattern_generator,
    source_tokens,
)


@pytest.mark.parametrize("grid", [(8, 8), (7, 9), (6, 11), (5, 5), (1, 9)])
@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("drawn", [True, False])
def test_one_destination_in_each_whole_cell(grid, stride, drawn):
    height, width = grid
    generator = pattern_generator(0, 0, "block") if drawn else None
    tokens = destination_tokens(height, width, stride, generator)
    y, x = tokens // width, tokens % width
    cells = [(i, j) for i in range(height // stride) for j in range(width // stride)]
    assert list(zip((y // stride).tolist(), (x // stride).tolist(), strict=True)) == cells
    if not drawn:
        assert (y % stride).sum() == 0
        assert (x % stride).sum() == 0


def test_random_destinations_are_uniform_within_a_cell():
    tokens = destination_tokens(200, 200, 2, pattern_generator(1, 2, "block"))
    places = Counter(((tokens // 200 % 2) * 2 + tokens % 2).tolist())
    assert set(places) == {0, 1, 2, 3}
    assert all(2300 < n < 2700 for n in places.values())  # 2,500 +- 4.6 sigma


def test_the_pattern_depends_on_seed_step_and_block_only():
    def pattern(*key):
        return destination_tokens(16, 16, 2, pattern_generator(*key)).tolist()

    torch.manual_seed(0)
    first = pattern(0, 0, "a")
    torch.manual_seed(1)
    assert pattern(0, 0, "a") == first
    others = [pattern(1, 0, "a"), pattern(0, 1, "a"), pattern(0, 0, "b"), pattern(0, 10, "a")]
    assert first not in others
    assert len({tuple(p) for p in others}) == 4


def test_no_global_generator_is_read_or_advanced():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    x = torch.ones(1, 64, 3)
    match(x, destination_tokens(8, 8, 2, pattern_generator(0, 0, "a")), Ratio(0.5))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_tokens_of_norm_zero(dtype):
    x = torch.randn(1, 64, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, ::3] = 0
    made, best = match(x, destination_tokens(8, 8, 2), Threshold(0.5))
    assert best.isfinite().all()
    sources = [t for t in range(64) if t not in destination_tokens(8, 8, 2)]
    zero = torch.tensor([t % 3 == 0 for t in sources])
    assert (best[0, zero] == 0).all()
    assert (best[0, ~zero] != 0).any()
    assert made.merge(x).isfinite().all()
    everything, _ = match(torch.zeros_like(x), destination_tokens(8, 8, 2), Ratio(0.75))
    assert everything.merge(torch.zeros_like(x)).abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_similarities_of_half_precision_tokens_are_fp32(dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 256, 16, generator=generator).repeat_interleave(4, dim=1)
    x = (x + 0.5 * torch.randn(x.shape, generator=generator)).to(dtype)
    destinations = destination_tokens(32, 32, 2)
    is_source = torch.ones(1024, dtype=torch.bool)
    is_source[destinations] = False
    sources = is_source.nonzero()[:, 0]
    best, nearest = nearest_destinations(x, sources, destinations)
    assert best.dtype == torch.float32
    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    scores = unit[:, sources] @ unit[:, destinations].mT
    assert (best - scores.gather(2, nearest[..., None])[..., 0]).abs().max() < 1e-6
    # The destination found may differ from the best one only by the product's rounding.
    assert (scores.amax(2) - best).max() < 2 * torch.finfo(dtype).eps
    # So a threshold between two steps of the dtype separates what the dtype cannot tell apart.
    for threshold in (0.7, 0.7003, 0.7006, 0.701):
        maps, _ = match_images(x, destinations, Threshold(threshold), images=2)
        assert [one.count for one in maps] == (best >= threshold).sum(1).tolist()
    exact = [(best >= t).sum().item() for t in (0.7, 0.7003, 0.7006, 0.701)]
    rounded = [(best.bfloat16() >= t).sum().item() for t in (0.7, 0.7003, 0.7006, 0.701)]
    assert len(set(exact)) == 4
    assert len(set(rounded)) < 4


def test_large_half_precision_tokens_do_not_overflow():
    """Tokens of norm 80,000, beyond fp16's 65,504, in groups of similar ones."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 64, generator=generator).repeat(1, 32, 1)
    x = (1e4 * (x + 0.3 * torch.randn(1, 64, 64, generator=generator))).half()
    assert x.isfinite().all()
    _, best = match(x, destination_tokens(8, 8, 2), Ratio(0.5))
    reference = match(x.double(), destination_tokens(8, 8, 2), Ratio(0.5))[1]
    assert (best - reference).abs().max() < 2e-3


def test_autocast_does_not_lower_the_precision():
    x = torch.randn(2, 256, 32, generator=torch.Generator().manual_seed(0))
    destinations = destination_tokens(16, 16, 2)
    plain = match(x, destinations, Ratio(0.5))[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(match(x, destinations, Ratio(0.5))[1], plain)


def test_comparing_in_parts_changes_nothing(monkeypatch):
    x = torch.randn(2, 256, 32, generator=torch.Generator().manual_seed(0))
    destinations = destination_tokens(16, 16, 2)
    whole, best = match(x, destinations, Ratio(0.5))
    monkeypatch.setattr("catome.matching.SCORES_AT_ONCE", 2 * 64 * 50)  # 192 sources: 50 at a time
    parts, best_of_parts = match(x, destinations, Ratio(0.5))
    assert torch.equal(whole.assignment, parts.assignment)
    assert torch.allclose(best, best_of_parts, atol=1e-6)


def test_equal_similarities_merge_the_first_tokens():
    made, _ = match(torch.ones(1, 64, 3), destination_tokens(8, 8, 2), Ratio(0.25))
    merged = (made.assignment[0] != torch.arange(64)).nonzero()[:, 0].tolist()
    assert merged == [t for t in range(64) if t not in destination_tokens(8, 8, 2)][:16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_window_compares_within_tiles(dtype):
    grid, side = (8, 12), 4
    x = torch.randn(2, 96, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    destinations = destination_tokens(*grid, 2, pattern_generator(0, 0, ""))
    sources = source_tokens(96, destinations)
    best, nearest = nearest_in_tiles(x, sources, destinations, grid, side)

    def tile(token):
        return token // 12 // side, token % 12 // side

    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    cosine = unit[:, sources] @ unit[:, destinations].mT
    for i, source in enumerate(sources.tolist()):
        for j, destination in enumerate(destinations.tolist()):
            if tile(source) != tile(destination):
                cosine[:, i, j] = -2
    reached = cosine.gather(2, nearest[..., None])[..., 0]
    tolerance = 1e-6 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(reached, cosine.amax(dim=2), rtol=0, atol=tolerance)
    torch.testing.assert_close(best.double(), reached, rtol=0, atol=1e-5)


def test_a_window_as_large_as_the_grid_compares_all():
    x = torch.randn(2, 64, 5, generator=torch.Generator().manual_seed(0))
    destinations = destination_tokens(8, 8, 2)
    whole, _ = match(x, destinations, Ratio(0.5))
    for window in (8, 16):
        again, _ = match(x, destinations, Ratio(0.5), (8, 8), window)
        assert torch.equal(again.assignment, whole.assignment)
    tiled, _ = match(x, destinations, Ratio(0.5), (8, 8), 4)
    assert not torch.equal(tiled.assignment, whole.assignment)


@pytest.mark.parametrize(
    ("grid", "window", "message"),
    [
        (None, 4, "grid=None: must be (height, width) of 64 tokens"),
        ((4, 8), 4, "grid=(4, 8): must be (height, width) of 64 tokens"),
        ((8, 8), 0, "window=0: must be a positive integer"),
        ((8, 8), 2.5, "window=2.5: must be a positive integer"),
    ],
)
def test_a_bad_window(grid, window, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        match(torch.randn(1, 64, 4), destination_tokens(8, 8, 2), Ratio(0.5), grid, window)


def test_a_window_that_does_not_divide_the_grid():
    x, destinations = torch.randn(1, 60, 4), destination_tokens(6, 10, 2)
    with pytest.raises(ValueError, match=r"^window=4: must divide the token grid, .* 6 x 10"):
        match(x, destinations, Ratio(0.5), (6, 10), 4)
