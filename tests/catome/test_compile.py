"""Token merging under torch.compile."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from catome import Interval, Ratio, Threshold, TokenMerging, apply, remove

EVERY_THIRD = Interval(3)
METHODS = {
    "ratio": TokenMerging(Ratio(0.5), EVERY_THIRD),
    "adaptive": TokenMerging(Threshold(0.7), EVERY_THIRD, count="batch"),
    "adaptive by image": TokenMerging(Threshold(0.7), EVERY_THIRD),
    "all modules": TokenMerging(Ratio(0.5), EVERY_THIRD, merge=("attn1", "attn2", "ff")),
}


@pytest.fixture(autouse=True)
def forgotten():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs():
    """Counts the graphs that were compiled, and runs them as they are."""
    return CompileCounterWithBackend("eager")


def outputs(unet, evaluate, graphs=None, evaluations=range(9)):
    """What three times three evaluations give, and how many graphs there were after each."""
    found, counts = [], []
    for i in evaluations:
        found.append(evaluate(unet, rows=4, timestep=100 - i, seed=i))
        counts.append(graphs.frame_count if graphs else 0)
    return found, counts


@pytest.mark.parametrize("name", METHODS)
def test_compiled_blocks_equal_eager_ones_and_never_compile_again(
    make_unet, evaluate, graphs, name
):
    compiled, eager = make_unet(), make_unet()
    for unet in (compiled, eager):
        apply(unet, METHODS[name], copies=2)
    compiled.compile_repeated_blocks(fullgraph=True, backend=graphs)
    theirs, counts = outputs(compiled, evaluate, graphs)
    ours, _ = outputs(eager, evaluate)
    assert all(map(torch.equal, theirs, ours))
    # All from the first evaluation; the merging blocks share theirs with each other.
    assert counts == counts[:1] * 9
    assert counts[0] == 2 if name in ("ratio", "all modules") else counts[0] <= 4


def test_a_whole_compiled_unet(make_unet, evaluate, graphs):
    """Hooks that differ between evaluations break its graph; nothing else is lost."""
    compiled, eager = make_unet(), make_unet()
    for unet in (compiled, eager):
        apply(unet, METHODS["adaptive by image"], copies=2)
    theirs, counts = outputs(torch.compile(compiled, backend=graphs), evaluate, graphs)
    ours, _ = outputs(eager, evaluate)
    assert all(map(torch.equal, theirs, ours))
    assert counts[1:] == counts[1:2] * 8  # the second learns that the timestep differs


def compiled_blocks(unet):
    unet.compile_repeated_blocks(fullgraph=True, backend="eager")
    return unet


def compiled_whole(unet):
    return torch.compile(unet, backend="eager")


@pytest.mark.parametrize("compiled", [compiled_blocks, compiled_whole])
@pytest.mark.parametrize("first", ["without", "with"])
def test_unets_with_and_without_merging_do_not_share_graphs(make_unet, evaluate, compiled, first):
    """Compiled in either order and called in turns: graphs without hooks do not guard them."""
    method = TokenMerging(Ratio(0.5), EVERY_THIRD, merge=("attn1", "attn2", "ff"))
    eager, own = {}, {}
    for name in ("with", "without"):
        eager[name], own[name] = make_unet(), make_unet()
        if name == "with":
            apply(eager[name], method, copies=2)
            apply(own[name], method, copies=2)
        own[name] = compiled(own[name])
    turns = sorted(own, key=lambda name: name != first) * 3
    for i, name in enumerate(turns):
        given = {"rows": 4, "timestep": 100 - i, "seed": i}
        assert torch.equal(evaluate(own[name], **given), evaluate(eager[name], **given))
    assert not torch.equal(evaluate(own["with"], **given), evaluate(own["without"], **given))


@pytest.mark.parametrize("merge", [("attn1",), ("attn2",), ("ff",)])
def test_each_merged_module_by_itself_is_told_from_one_without(make_unet, evaluate, merge):
    plain, merging, eager = make_unet(), make_unet(), make_unet()
    evaluate(compiled_blocks(plain), rows=4, timestep=100, seed=0)
    for unet in (merging, eager):
        apply(unet, TokenMerging(Ratio(0.5), merge=merge), copies=2)
    compiled_blocks(merging)
    given = {"rows": 4, "timestep": 100, "seed": 0}
    assert torch.equal(evaluate(merging, **given), evaluate(eager, **given))


def test_a_pipeline_of_compiled_blocks(make_pipeline, paint, graphs):
    """Generations of different lengths, with the clock of the scheduler."""
    compiled, eager = make_pipeline(), make_pipeline()
    for pipe in (compiled, eager):
        apply(pipe, METHODS["adaptive by image"])
    compiled.unet.compile_repeated_blocks(fullgraph=True, backend=graphs)
    assert torch.equal(paint(compiled), paint(eager))
    count = graphs.frame_count
    for seed in (1, 2):
        assert torch.equal(paint(compiled, steps=5, seed=seed), paint(eager, steps=5, seed=seed))
    assert graphs.frame_count == count


def test_removal_reaches_a_compiled_unet(make_unet, evaluate, graphs):
    unet = make_unet()
    apply(unet, METHODS["ratio"])
    unet.compile_repeated_blocks(fullgraph=True, backend=graphs)
    merged = evaluate(unet)
    remove(unet)
    plain = evaluate(make_unet())
    assert not torch.equal(merged, plain)
    assert torch.equal(evaluate(unet), plain)


@pytest.mark.long
def test_inductor(make_unet, evaluate):
    """The compiler that users have, with its own rounding."""
    compiled, eager = make_unet(), make_unet()
    for unet in (compiled, eager):
        apply(unet, METHODS["adaptive"], copies=2)
    compiled.compile_repeated_blocks(fullgraph=True)
    theirs, _ = outputs(compiled, evaluate, evaluations=range(4))
    ours, _ = outputs(eager, evaluate, evaluations=range(4))
    for their, our in zip(theirs, ours, strict=True):
        torch.testing.assert_close(their, our, rtol=1e-4, atol=1e-5)
