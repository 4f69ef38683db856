"""Gradients through token merging equal those without gradient checkpointing."""

from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from catome import Checkpoints, Interval, Ratio, Threshold, TokenMerging, apply

SELECTS = [Ratio(0.5), Threshold(0.5)]
TEXT = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(2))
NOISE = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(1))


def plain(unet):
    return lambda x, t: unet(x, t, TEXT.to(x.dtype)).sample


def blocks(unet, reentrant):
    """As Diffusers does, or as training scripts do that pass a function."""
    if reentrant:
        unet.enable_gradient_checkpointing(partial(checkpoint, use_reentrant=True))
    else:
        unet.enable_gradient_checkpointing()
    return plain(unet)


def whole(unet, reentrant):
    return lambda x, t: checkpoint(lambda *a: plain(unet)(*a), x, t, use_reentrant=reentrant)


def around(unet, reentrant):
    def scaled(x, t):
        return plain(unet)(torch.cat([x[:2], x[2:]]) * 1.0, t)

    return lambda x, t: checkpoint(scaled, x, t, use_reentrant=reentrant)


def within(unet):
    """A region larger than a block and smaller than the U-Net."""
    stage = unet.down_blocks[0]
    forward = stage.forward

    def checkpointed(hidden_states, temb, **given):
        part = partial(forward, **given)
        return checkpoint(part, hidden_states, temb, use_reentrant=False)

    stage.forward = checkpointed
    return plain(unet)


def gradients(unet, evaluate, steps=2, apart=False):
    """Of a loss after a few evaluations, one on the other's output or (`apart`) side by side."""
    parameters = [p for n, p in unet.named_parameters() if "attn" in n or "ff" in n]
    for parameter in unet.parameters():
        parameter.requires_grad_(True)
    x = NOISE.to(unet.dtype, copy=True).requires_grad_()
    outputs, y = [], x
    for i in range(steps):
        y = evaluate(x if apart else y, torch.tensor(900 - 300 * i))
        outputs.append(y)
    loss = sum(o.square().mean() for o in outputs) if apart else y.square().mean()
    loss.backward()
    return [one.grad for one in (x, *parameters)]


def nearly(a, b):
    """Equal but for the order in which gradients were added up."""
    return bool((a - b).norm() <= 1e-5 * b.norm())


def compared(make_unet, method, wrap, steps=2, apart=False, dtype=torch.float32, reordered=False):
    found, handles = [], []
    for evaluating in (plain, wrap):
        unet = make_unet().to(dtype)
        handles.append(apply(unet, method, copies=2, record=True))
        found.append(gradients(unet, evaluating(unet), steps, apart))
    same = nearly if reordered else torch.equal
    assert all((a is None and b is None) or same(a, b) for a, b in zip(*found, strict=True))
    assert sum(g is not None and bool(g.abs().max() > 0) for g in found[0]) > 10
    ours, theirs = (
        [(r.step, r.block, r.matched, r.tokens_out) for r in h.records] for h in handles
    )
    assert ours == theirs
    assert handles[0].clock.step == handles[1].clock.step == steps - 1


WRAPS = {
    "blocks": partial(blocks, reentrant=False),
    "blocks, reentrant": partial(blocks, reentrant=True),
    "whole": partial(whole, reentrant=False),
    "whole, reentrant": partial(whole, reentrant=True),
    "around": partial(around, reentrant=False),
    "within": within,
}


def test_reentrant_checkpointing_adds_gradients_in_another_order(make_unet):
    """Of a U-Net without merging, so that the bits of the others cannot be expected."""
    found = []
    for wrap in (plain, WRAPS["blocks, reentrant"]):
        unet = make_unet()
        found.append(gradients(unet, wrap(unet)))
    pairs = [(a, b) for a, b in zip(*found, strict=True) if a is not None]
    assert all(nearly(a, b) for a, b in pairs)
    assert not all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("select", SELECTS)
def test_two_evaluations_then_backward(make_unet, wrap, select):
    """The first evaluation is made again after the second, with the first one's match."""
    compared(make_unet, TokenMerging(select), WRAPS[wrap], reordered="reentrant" in wrap)


@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.parametrize(
    ("apart", "dtype"), [(False, torch.bfloat16), (True, torch.float32), (False, torch.float64)]
)
def test_more_evaluations_other_graphs_and_dtypes(make_unet, select, apart, dtype):
    merge = ("attn1", "attn2", "ff")
    method = TokenMerging(select, Interval(2), merge=merge, max_downsample=2)
    compared(make_unet, method, WRAPS["blocks"], 4, apart, dtype)


def test_a_loss_on_what_a_block_saw(make_unet):
    """No gradient reaches the U-Net's output, as with losses on attention maps; and the loss of the
    first evaluation is propagated after the second."""

    def grad(checkpointing):
        unet = make_unet()
        apply(unet, TokenMerging(Threshold(0.5)), copies=2)
        if checkpointing:
            unet.enable_gradient_checkpointing()
        seen = []
        unet.up_blocks[1].register_forward_hook(lambda _, args, out: seen.append(out))
        unet.requires_grad_(True)
        for t in (900, 600):
            unet(NOISE, t, TEXT)
        weight = unet.down_blocks[0].attentions[0].transformer_blocks[0].attn1.to_q.weight
        return torch.autograd.grad(seen[0].square().mean(), weight)[0]

    assert torch.equal(grad(True), grad(False))


def test_what_cannot_be_told_is_refused(make_unet):
    """Reentrant, around the U-Net: nothing ties the second run to the first."""
    unet = make_unet()
    apply(unet, TokenMerging(Ratio(0.5)))
    with pytest.raises(
        RuntimeError, match=r"^the U-Net runs within a backward pass.*reentrant=Fal"
    ):
        gradients(unet, around(unet, reentrant=True))


def test_evaluations_are_forgotten_with_their_graph(make_unet):
    unet = make_unet()
    handle = apply(unet, TokenMerging(Ratio(0.5)))
    for _ in range(3):
        gradients(unet, blocks(unet, reentrant=False), steps=2)
    with torch.no_grad():
        for t in (900, 600, 300):
            unet(NOISE.clone(), t, TEXT)
    assert len(handle._state._recomputation._inputs) <= 1


@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.parametrize("cache", ["fresh", "official"])
def test_training_after_sampling_in_inference_mode(make_unet, select, cache):
    """With a match that was made there."""
    method = TokenMerging(select, Checkpoints([1]), cache=cache)

    def grad(mode):
        unet = make_unet()
        apply(unet, method, copies=2)
        with mode():
            unet(NOISE, torch.tensor(900), TEXT)
        return gradients(unet, plain(unet), steps=1)

    pairs = zip(grad(torch.inference_mode), grad(torch.no_grad), strict=True)
    assert all(a is b is None or torch.equal(a, b) for a, b in pairs)


def test_a_pipeline_in_inference_mode_then_a_training_step(make_unet, make_pipeline, paint):
    pipe = make_pipeline(unet=make_unet())
    apply(pipe, TokenMerging(Ratio(0.5), Checkpoints([0]), cache="official"))
    with torch.inference_mode():
        paint(pipe, images=2)
    gradients(pipe.unet, plain(pipe.unet), steps=1)
