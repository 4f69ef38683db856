"""Merging and un-merging as arithmetic, for any grid, stride, batch and dtype."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from catome import Checkpoints, MergeMap, Ratio, Threshold, TokenMerging, destination_tokens
from catome.matching import match_images, pattern_generator

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@st.composite
def matches(draw):
    """Tokens of one image and their match, of a batch where some images keep more than others."""
    stride = draw(st.integers(2, 4))
    height, width = draw(st.integers(stride, 9)), draw(st.integers(stride, 9))
    images, copies = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    channels = draw(st.integers(1, 5))
    seed = draw(st.integers(0, 10**6))
    dtype = draw(st.sampled_from(list(TOLERANCE)))
    select = draw(
        st.one_of(
            st.floats(0, 1).map(Ratio),
            st.floats(-1, 1).map(Threshold),
        )
    )
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(images * copies, height * width, channels, generator=generator).to(dtype)
    pattern = draw(st.sampled_from([None, pattern_generator(seed, 0, "block")]))
    destinations = destination_tokens(height, width, stride, pattern)
    maps, best = match_images(x, destinations, select, images)
    chosen = draw(st.integers(0, images - 1))
    rows = slice(chosen, None, images)
    return x[rows], maps[chosen], best[rows], destinations, select


@settings(max_examples=150, deadline=None, derandomize=True)
@given(matches())
def test_merge_is_a_mean_and_unmerge_copies_it_back(drawn):
    x, made, _, destinations, _ = drawn
    short = made.merge(x)
    back = made.unmerge(short)
    assert short.shape == (len(x), made.length, x.shape[2])
    assert short.dtype == x.dtype
    assert back.shape == x.shape
    assert back.dtype == x.dtype

    for row, goes_to in enumerate(made.assignment.tolist()):
        for destination in destinations.tolist():
            assert goes_to[destination] == destination
            cluster = [t for t, goal in enumerate(goes_to) if goal == destination]
            mean = x[row, cluster].double().mean(0)
            got = back[row, cluster].double()
            assert (got - got[0]).abs().max() == 0
            scale = x[row, cluster].double().abs().max()
            assert (got[0] - mean).abs().max() <= TOLERANCE[x.dtype] * scale
            if len(cluster) == 1:  # a lone destination
                assert torch.equal(back[row, destination], x[row, destination])
        for token, goal in enumerate(goes_to):
            if goal == token and token not in destinations:  # an unmerged source
                assert torch.equal(back[row, token], x[row, token])
            else:
                assert goal in destinations


@settings(max_examples=150, deadline=None, derandomize=True)
@given(matches())
def test_counts_add_up(drawn):
    x, made, best, destinations, select = drawn
    rows, tokens, _ = x.shape
    sources = tokens - len(destinations)
    merged = (made.assignment != torch.arange(tokens)).sum(1).tolist()
    assert merged == [made.count] * rows
    assert made.length == tokens - made.count
    assert (1 / made.weights).sum().item() == pytest.approx((made.restored.bincount() ** 2).sum())
    if isinstance(select, Ratio):
        assert made.count == min(int(select.ratio * tokens), sources)
    else:
        assert made.count == (best >= select.threshold).sum(1).max()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(matches())
def test_each_row_merges_its_most_similar_sources(drawn):
    x, made, best, destinations, _ = drawn
    is_source = torch.ones(x.shape[1], dtype=torch.bool)
    is_source[destinations] = False
    merged = (made.assignment != torch.arange(x.shape[1]))[:, is_source]
    for row in range(len(x)):
        least_merged = best[row, merged[row]].amin() if merged[row].any() else 2.0
        most_kept = best[row, ~merged[row]].amax() if (~merged[row]).any() else -2.0
        assert least_merged >= most_kept


def hand_made(assignment, destinations, count):
    """A map over one row of tokens, from the token each source goes to."""
    tokens = len(assignment)
    sources = [t for t in range(tokens) if t not in destinations]
    order = sorted(range(len(sources)), key=lambda i: assignment[sources[i]] == sources[i])
    nearest = [destinations.index(assignment[s]) if assignment[s] != s else 0 for s in sources]
    return MergeMap.build(
        tokens,
        torch.tensor(sources),
        torch.tensor(destinations),
        torch.tensor([nearest]),
        torch.tensor([order]),
        count,
    )


def test_hand_worked_example():
    # 0 and 3 are destinations; 1 and 2 go to 0, 4 goes to 3, 5 stays.
    made = hand_made([0, 0, 0, 3, 3, 5], [0, 3], 3)
    x = torch.tensor([1.0, 2.0, 6.0, 10.0, 20.0, 7.0]).view(1, 6, 1)
    assert made.merge(x).flatten().tolist() == [7.0, 3.0, 15.0]
    y = torch.tensor([100.0, 200.0, 300.0]).view(1, 3, 1)
    assert made.unmerge(y).flatten().tolist() == [200, 200, 200, 300, 300, 100]
    assert made.assignment.tolist() == [[0, 0, 0, 3, 3, 5]]


def test_overlap_is_the_share_of_pairs_held_by_the_other():
    a = hand_made([0, 0, 0, 3, 3, 5], [0, 3], 3)
    b = hand_made([0, 0, 3, 3, 4, 3], [0, 3], 3)
    assert a.overlap(a).tolist() == [1.0]
    assert a.overlap(b).tolist() == pytest.approx([1 / 3])
    with pytest.raises(ValueError, match="overlap: maps of"):
        a.overlap(hand_made([0, 0, 0, 3], [0, 3], 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_means_are_rounded_once(dtype):
    made = hand_made([0, 0, 0], [0], 2)
    x = torch.randn(1, 3, 1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = x.double().mean(1)

    def steps(found):  # of the dtype, between the exact mean and what was found
        exponent = (torch.frexp(exact).exponent - 1).clamp(min=-14)  # fp16 is subnormal below
        return ((found.double() - exact).abs() / torch.finfo(dtype).eps / 2.0**exponent).max()

    assert steps(made.merge(x)[:, 0]) <= 0.501
    assert steps(x.float().sum(1).to(dtype) / 3) > 0.6  # rounded twice


def test_wrong_shapes_are_refused():
    made = hand_made([0, 0, 0, 3], [0, 3], 2)
    for use, shape in ((made.merge, (1, 5, 2)), (made.unmerge, (1, 4, 2)), (made.merge, (2, 4, 2))):
        with pytest.raises(ValueError, match=r"tokens of shape .* must be \(1, "):
            use(torch.zeros(shape))


def test_a_map_moves_to_another_device():
    moved = hand_made([0, 0, 0, 3], [0, 3], 2).to("meta")
    assert moved.device.type == "meta"
    assert moved.members.device.type == "meta"
    assert moved.merge(torch.zeros(1, 4, 2, device="meta")).shape == (1, 2, 2)


def test_gradients_pass_through():
    made = hand_made([0, 0, 0, 3, 3, 5], [0, 3], 3)
    x = torch.zeros(1, 6, 1, requires_grad=True)
    made.unmerge(made.merge(x)).sum().backward()
    assert x.grad.flatten().tolist() == pytest.approx([1.0] * 6)


def test_a_method_is_data_too():
    method = TokenMerging(Ratio(0.5), Checkpoints([0, 3]))
    assert method == TokenMerging(Ratio(0.5), Checkpoints((0, 3)))
    assert hash(method)
