"""Our match, merge and un-merge equal those of tomesd and ca_tome.

Peers sort unstably and compute similarities in another order of operations, so that a source may
differ where two similarities, or a similarity and the cut, lie within 1e-6 of each other.
"""

import ca_tome.merge
import pytest
import tomesd.merge
import torch

from catome import Ratio, Threshold, destination_tokens, match
from catome.matching import pattern_generator

GRIDS = [(64, 64), (32, 32), (48, 64), (33, 47), (21, 10)]
STRIDES = [2, 3, 4]
RATIOS = [0.1, 0.25, 0.4, 0.5, 0.6, 0.75]
THRESHOLDS = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
TIE = 1e-6
SHARE_OF_TIES = 1e-3


def tomesd_closures(x, height, width, stride, ratio, generator=None):
    return tomesd.merge.bipartite_soft_matching_random2d(
        x,
        width,
        height,
        stride,
        stride,
        int(ratio * x.shape[1]),
        no_rand=generator is None,
        generator=generator,
    )


def ca_tome_closures(x, height, width, stride, threshold, generator=None):
    return ca_tome.merge.bipartite_soft_matching_random2d(
        x,
        width,
        height,
        stride,
        stride,
        threshold,
        {"compute_on": [], "merge": None, "unmerge": None},
        1,
        no_rand=generator is None,
        generator=generator,
    )


def similarities(x, destinations):
    """(B, N, D) cosines in fp64."""
    unit = torch.nn.functional.normalize(x.double(), dim=-1)
    return unit @ unit[:, destinations].mT


def assert_same(x, ours, theirs, destinations):
    """Equal as maps from source to destination and as sets of merged sources, ties apart."""
    rows, n_tokens, _ = x.shape
    is_source = torch.ones(n_tokens, dtype=torch.bool)
    is_source[destinations] = False
    position = torch.zeros(n_tokens, dtype=torch.long)
    position[destinations] = torch.arange(len(destinations))
    cosine = similarities(x, destinations)
    best = cosine.amax(2)

    token = torch.arange(n_tokens)
    merged, their_merged = ours.assignment != token, theirs.assignment != token
    assert torch.equal(merged.sum(1), their_merged.sum(1))
    assert not their_merged[:, destinations].any()

    both = merged & their_merged
    goal = cosine.gather(2, position[ours.assignment][..., None])[..., 0]
    their_goal = cosine.gather(2, position[theirs.assignment][..., None])[..., 0]
    other_goal = both & (ours.assignment != theirs.assignment)
    assert ((goal - their_goal).abs() <= TIE)[other_goal].all()

    other_set = merged ^ their_merged
    for row in range(rows):
        if other_set[row].any():
            cut = best[row][merged[row]].min()
            assert ((best[row] - cut).abs() <= TIE)[other_set[row]].all()
    share = (other_goal | other_set)[:, is_source].float().mean().item()
    assert share < SHARE_OF_TIES

    # The tensors: every short row of ours against theirs for the same token, and un-merged.
    same = ~(other_goal | other_set).any(1)
    assert same.any()
    restored = ours.unmerge(ours.merge(x))
    assert (restored - theirs.restored)[same].abs().max() <= 1e-5
    short = ours.merge(x)
    assert short.shape == theirs.short.shape
    kept = restored.gather(1, theirs.order[..., None].expand(-1, -1, x.shape[2]))
    assert (kept - theirs.short)[same].abs().max() <= 1e-5
    # Both end in the destinations; ours cell by cell.
    assert torch.equal(short[:, -len(destinations) :], restored[:, destinations])
    assert torch.equal(
        theirs.order[0, -len(destinations) :].sort().values, destinations.sort().values
    )
    return int(merged.sum())


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("drawn", [False, True], ids=["corner", "random"])
def test_ratio_equals_tomesd(tokens, read, grid, stride, ratio, drawn):
    if drawn and ratio not in (0.25, 0.6):
        ratio += 0.01  # other counts than with the corner
    x = tokens(*grid, seed=stride)
    # The same generator state on both sides gives both the same pattern.
    ours_from, theirs_from = (pattern_generator(0, 3, "block") if drawn else None for _ in range(2))
    destinations = destination_tokens(*grid, stride, ours_from)
    ours, _ = match(x, destinations, Ratio(ratio))
    theirs = read(*tomesd_closures(x, *grid, stride, ratio, theirs_from), x, destinations)
    merged = assert_same(x, ours, theirs, destinations)
    assert merged == 2 * min(int(ratio * x.shape[1]), x.shape[1] - len(destinations))


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("grid", GRIDS)
def test_threshold_equals_ca_tome(tokens, read, grid, stride, threshold):
    x = tokens(*grid, seed=10 + stride)
    destinations = destination_tokens(*grid, stride)
    ours, best = match(x, destinations, Threshold(threshold))
    theirs = read(*ca_tome_closures(x, *grid, stride, threshold), x, destinations)
    merged = assert_same(x, ours, theirs, destinations)
    assert 0 < merged < best.numel()


@pytest.mark.parametrize("threshold", [0.5, 0.7])
@pytest.mark.parametrize("grid", GRIDS)
def test_threshold_equals_ca_tome_with_the_same_random_pattern(tokens, read, grid, threshold):
    x = tokens(*grid, seed=20)
    destinations = destination_tokens(*grid, 2, pattern_generator(1, 1, "block"))
    ours, _ = match(x, destinations, Threshold(threshold))
    closures = ca_tome_closures(x, *grid, 2, threshold, pattern_generator(1, 1, "block"))
    assert assert_same(x, ours, read(*closures, x, destinations), destinations) > 0


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("grid", [(64, 64), (33, 47)])
def test_bf16_error_is_not_above_tomesds(tokens, read, grid, seed):
    """Against fp64 on the same bf16 tokens: pairs, the merged set, and the merged tensors."""
    x = tokens(*grid, seed=seed, dtype=torch.bfloat16)
    destinations = destination_tokens(*grid, 2)
    exact, _ = match(x.double(), destinations, Ratio(0.5))
    ours, _ = match(x, destinations, Ratio(0.5))
    theirs = read(*tomesd_closures(x, *grid, 2, 0.5), x, destinations)

    token = torch.arange(x.shape[1])
    position = torch.zeros(x.shape[1], dtype=torch.long)
    position[destinations] = torch.arange(len(destinations))
    cosine = similarities(x, destinations)

    def errors(assignment, restored):
        merged = assignment != token
        wrong_set = (merged ^ (exact.assignment != token)).sum().item()
        reached = cosine.gather(2, position[assignment][..., None])[..., 0]
        lost = (cosine.amax(2) - reached)[merged].sum().item()
        # Means under the same assignment in fp64.
        total = torch.zeros(x.shape, dtype=torch.float64)
        index = assignment[..., None].expand(x.shape)
        mean = total.scatter_reduce(1, index, x.double(), "mean", include_self=False)
        return wrong_set, lost, (restored.double() - mean.gather(1, index)).abs().mean().item()

    our_errors = errors(ours.assignment, ours.unmerge(ours.merge(x)))
    their_errors = errors(theirs.assignment, theirs.restored)
    assert all(a <= b for a, b in zip(our_errors, their_errors, strict=True))
    assert our_errors[2] < their_errors[2]
