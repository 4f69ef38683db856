"""A small SD-v1-shaped U-Net gives the same outputs patched by us and by the peers."""

import copy

import ca_tome.patch
import pytest
import tomesd
import torch
from diffusers import PNDMScheduler

from catome import Checkpoints, Ratio, Recorder, Threshold, TokenMerging, apply, get_handle, remove

TOP_LEVEL_BLOCKS = 5


def inputs(rows=2, size=(24, 24), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, 4, *size, generator=generator),
        torch.randn(rows, 7, 16, generator=generator),
    )


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {}),
        ({"max_downsample": 2}, {"max_downsample": 2}),
        ({"merge": ("attn1", "attn2", "ff")}, {"merge_crossattn": True, "merge_mlp": True}),
        ({"stride": 3}, {"sx": 3, "sy": 3}),
    ],
)
def test_ratio_equals_tomesd(sd_unet, options, theirs):
    sample, text = inputs()
    peer = copy.deepcopy(sd_unet)
    untouched = peer(sample, 500, text).sample
    tomesd.apply_patch(peer, ratio=0.5, use_rand=False, **theirs)
    expected = peer(sample, 500, text).sample
    method = TokenMerging(Ratio(0.5), destinations="corner", **options)
    handle = apply(sd_unet, method, record=True)
    ours = sd_unet(sample, 500, text).sample
    assert len(handle.blocks) == (10 if "max_downsample" in options else TOP_LEVEL_BLOCKS)
    assert (ours - expected).abs().max() <= 1e-5
    assert (ours - untouched).abs().max() > 1e-3


def two_generations(unet, ours_method, peer_list, threshold):
    """Outputs of both at every evaluation of two 11-step PLMS generations, on the same latents."""
    remove(unet)
    peer = copy.deepcopy(unet)
    ca_tome.patch.apply_patch(peer, compute_on=peer_list, r=threshold, use_rand=False)
    blocks = [m for m in peer.modules() if type(m).__name__ == "AdaptiveToMeBlock"]
    handle = apply(unet, ours_method, record=True)
    ours, theirs = [], []
    for image in range(2):
        scheduler = PNDMScheduler(
            beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
        )
        scheduler.set_timesteps(11)
        sample, text = inputs(rows=1, seed=image)
        text = torch.cat((torch.zeros_like(text), text))
        for i, t in enumerate(scheduler.timesteps):
            both = torch.cat((sample, sample))
            for block in blocks:
                block.inference_step = i + 1  # the official pipeline counts from 1
            theirs.append(peer(both, t, text).sample)
            ours.append(unet(both, t, text).sample)
            uncond, cond = ours[-1].chunk(2)
            sample = scheduler.step(uncond + 7.5 * (cond - uncond), t, sample).prev_sample
    return ours, theirs, handle


def median_similarity(unet):
    """A threshold that about half of the sources of the first evaluation pass."""
    recorder = Recorder(similarities=True)
    with apply(unet, TokenMerging(Threshold(0.99), destinations="corner"), record=recorder):
        sample, text = inputs(rows=1)
        unet(torch.cat((sample, sample)), 900, torch.cat((torch.zeros_like(text), text)))
    return torch.cat([r.similarities.flatten() for r in recorder.records]).median().item()


def test_official_clock_and_cache_equal_ca_tome(sd_unet):
    threshold = median_similarity(sd_unet)
    entries = [4, 6, 9, 11]  # evaluations 3, 5, 8, 10; without 1, so image 2 begins with a match
    method = TokenMerging(
        Threshold(threshold),
        Checkpoints(entries),
        destinations="corner",
        count="batch",
        cache="official",
    )
    ours, theirs, handle = two_generations(sd_unet, method, entries, threshold)
    assert len(ours) == 24
    assert max((a - b).abs().max() for a, b in zip(ours, theirs, strict=True)) <= 1e-5

    first = [r for r in handle.records if r.block == handle.blocks[0]]
    matched = [(r.generation, r.step) for r in first if r.matched]
    assert matched == [(0, s) for s in (0, 3, 5, 8, 10)] + [(1, s) for s in (3, 5, 8, 10)]
    assert len(handle.blocks) == TOP_LEVEL_BLOCKS
    # Some sources merge, but not all, in every block at every evaluation.
    for r in handle.records:
        merged = r.tokens_in - r.tokens_out[0]
        assert 0 < merged < r.sources


def test_what_a_fresh_cache_changes(sd_unet):
    """Read from 0 and begun afresh, the list matches elsewhere and image 2 at its beginning."""
    threshold = median_similarity(sd_unet)
    entries = [4, 6, 9, 11]
    fresh = TokenMerging(
        Threshold(threshold), Checkpoints(entries), destinations="corner", count="batch"
    )
    ours, theirs, handle = two_generations(sd_unet, fresh, entries, threshold)
    first = [r for r in handle.records if r.block == handle.blocks[0]]
    matched = [(r.generation, r.step) for r in first if r.matched]
    assert matched == [(g, s) for g in (0, 1) for s in (0, 4, 6, 9, 11)]

    distance = [(a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)]
    assert max(distance[:3]) <= 1e-5  # the same match at 0, until the official entry 4
    assert distance[3] > 1e-3
    assert distance[12] > 1e-3  # image 2: a match of its own, not image 1's last

    # The official entries shifted by one, image by image: only the carried cache differs.
    shifted = TokenMerging(
        Threshold(threshold),
        Checkpoints([e - 1 for e in entries]),
        destinations="corner",
        count="batch",
    )
    ours, theirs, _ = two_generations(sd_unet, shifted, entries, threshold)
    distance = [(a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)]
    assert max(distance[:12]) <= 1e-5
    assert min(distance[12:15]) > 1e-3  # until evaluation 3 of image 2
    assert max(distance[15:]) <= 1e-5
    assert get_handle(sd_unet).clock.generation == 1
