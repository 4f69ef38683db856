"""The clock with real schedulers and pipelines: PLMS, Heun, LCM, image-to-image, accidents."""

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    EulerDiscreteScheduler,
    HeunDiscreteScheduler,
    KDPM2DiscreteScheduler,
    LatentConsistencyModelPipeline,
    LCMScheduler,
    PNDMScheduler,
    StableDiffusionImg2ImgPipeline,
)

from catome import (
    Checkpoints,
    EveryStep,
    Interval,
    Ratio,
    Recorder,
    Threshold,
    TokenMerging,
    apply,
)
from catome.clock import Clock

HALF = TokenMerging(Ratio(0.5), Interval(3))


def evaluations(handle):
    """Steps of each generation, and the steps at which the first block matched anew."""
    first = handle.blocks[0]
    steps, matched = {}, {}
    for r in handle.records:
        if r.block == first:
            steps.setdefault(r.generation, []).append(r.step)
            matched.setdefault(r.generation, []).extend([r.step] if r.matched else [])
    return list(steps.values()), list(matched.values())


def test_plms_makes_51_evaluations(pipe, paint):
    handle = apply(pipe, TokenMerging(Ratio(0.5), Checkpoints([0, 8, 49, 50, 51])), record=True)
    paint(pipe, steps=50)
    paint(pipe, steps=50)
    steps, matched = evaluations(handle)
    assert steps == [list(range(51))] * 2
    assert matched == [[0, 8, 49, 50]] * 2


@pytest.mark.parametrize(
    ("scheduler", "count"),
    [
        (DDIMScheduler, 6),
        (EulerDiscreteScheduler, 6),
        (HeunDiscreteScheduler, 11),
        (KDPM2DiscreteScheduler, 11),
        (PNDMScheduler, 7),
        (LCMScheduler, 6),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_schedulers(make_unet, make_pipeline, paint, scheduler, count, bare):
    """A bare U-Net sees only the timesteps: repeated ones (PLMS, Heun) begin nothing."""
    options = {"skip_prk_steps": True} if scheduler is PNDMScheduler else {}
    if scheduler in (DDIMScheduler, PNDMScheduler, LCMScheduler):
        options["steps_offset"] = 1
    pipe = make_pipeline(scheduler(**options))
    handle = apply(pipe.unet if bare else pipe, HALF, record=True)
    for _ in range(2):
        paint(pipe, steps=6)
    steps, matched = evaluations(handle)
    assert steps == [list(range(count))] * 2
    assert matched == [[s for s in range(count) if s % 3 == 0]] * 2


def test_lcm_pipeline(make_pipeline, make_unet, paint):
    pipe = make_pipeline(
        LCMScheduler(), LatentConsistencyModelPipeline, make_unet(time_cond_proj_dim=8)
    )
    handle = apply(pipe, TokenMerging(Threshold(0.5), Interval(3)), record=True)
    for _ in range(2):
        paint(pipe, images=2, steps=4, guidance=None)
    assert evaluations(handle) == ([[0, 1, 2, 3]] * 2, [[0, 3]] * 2)
    # Guidance is in the weights: each row is an image of its own.
    assert {len(r.tokens_out) for r in handle.records} == {2}
    assert any(len(set(r.tokens_out)) == 2 for r in handle.records)


def test_one_step_generations_of_a_pipeline(make_pipeline, make_unet, paint):
    pipe = make_pipeline(
        LCMScheduler(), LatentConsistencyModelPipeline, make_unet(time_cond_proj_dim=8)
    )
    handle = apply(pipe, HALF, record=True)
    for _ in range(3):
        paint(pipe, steps=1, guidance=None)
    assert evaluations(handle) == ([[0]] * 3, [[0]] * 3)


def test_image_to_image(make_pipeline, paint):
    pipe = make_pipeline(cls=StableDiffusionImg2ImgPipeline)
    handle = apply(pipe, HALF, record=True)
    image = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    for strength in (0.5, 0.5, 0.3):
        paint(pipe, steps=10, image=image, strength=strength)
    steps, matched = evaluations(handle)
    # PLMS repeats its second timestep, which is within the 50 % (30 %) that remain.
    assert steps == [list(range(6)), list(range(6)), list(range(4))]
    assert matched == [[0, 3], [0, 3], [0, 3]]


def test_the_scheduler_is_replaced(pipe, paint):
    handle = apply(pipe, HALF, record=True)
    paint(pipe, steps=4)
    pipe.scheduler = EulerDiscreteScheduler.from_config(pipe.scheduler.config)
    paint(pipe, steps=4)
    pipe.scheduler = HeunDiscreteScheduler.from_config(pipe.scheduler.config)
    paint(pipe, steps=4)
    steps, matched = evaluations(handle)
    assert steps == [list(range(5)), list(range(4)), list(range(7))]
    assert matched == [[0, 3], [0, 3], [0, 3, 6]]


def test_an_exception_leaves_nothing_behind(make_pipeline, paint):
    class Stop(Exception):
        pass

    def stop(pipe, step, timestep, tensors):
        if step == 2:
            raise Stop
        return tensors

    def fail(module, args, output):
        raise Stop

    method = TokenMerging(Threshold(0.5), Checkpoints([1]))
    undisturbed = make_pipeline()
    apply(undisturbed, method)
    expected = paint(undisturbed, seed=1)

    pipe = make_pipeline()
    handle = apply(pipe, method, record=True)
    with pytest.raises(Stop):
        paint(pipe, callback_on_step_end=stop)
    assert torch.equal(paint(pipe, seed=1), expected)
    # Within an evaluation, between merging and un-merging.
    hook = pipe.unet.down_blocks[0].attentions[0].transformer_blocks[0].attn1.to_q
    hook = hook.register_forward_hook(fail)
    with pytest.raises(Stop):
        paint(pipe)
    hook.remove()
    assert torch.equal(paint(pipe, seed=1), expected)
    assert [len(s) for s in evaluations(handle)[0]] == [3, 5, 1, 5]


def test_another_batch_and_resolution(pipe, paint):
    """The list says never again, but a match for another grid or batch is none."""
    handle = apply(pipe, TokenMerging(Threshold(0.5), Checkpoints([0])), record=True)
    for call in ({}, {"images": 3}, {"size": 24}, {"size": 8}):
        assert paint(pipe, **call).isfinite().all()
    assert evaluations(handle)[1] == [[0]] * 4
    grids = {(r.generation, r.grid, len(r.tokens_out)) for r in handle.records}
    assert grids == {(0, (8, 8), 2), (1, (8, 8), 6), (2, (12, 12), 2), (3, (4, 4), 2)}


@pytest.mark.parametrize("cache", ["fresh", "official"])
def test_another_grid_within_a_generation_matches_again(unet, evaluate, cache):
    method = TokenMerging(Ratio(0.5), Checkpoints([1]), cache=cache)
    handle = apply(unet, method, record=True)
    for size, rows in (((8, 8), 2), ((8, 8), 2), ((4, 16), 2), ((16, 4), 2), ((16, 4), 3)):
        evaluate(unet, rows, size)
    matched = [r.matched for r in handle.records if r.block == handle.blocks[0]]
    at_one = cache == "fresh"  # entry 1 means evaluation 1, or the first
    assert matched == [True, at_one, True, True, True]


def test_guidance_that_stops_midway(pipe, paint):
    def unguide(pipe, step, timestep, tensors):
        if step == 1:
            pipe._guidance_scale = 0.0
            tensors["prompt_embeds"] = tensors["prompt_embeds"].chunk(2)[-1]
        return tensors

    handle = apply(pipe, TokenMerging(Threshold(0.5), Checkpoints([0])), record=True)
    paint(
        pipe,
        callback_on_step_end=unguide,
        callback_on_step_end_tensor_inputs=["prompt_embeds"],
    )
    assert [len(r.tokens_out) for r in handle.records[::3]] == [2, 2, 1, 1, 1]
    assert evaluations(handle)[1] == [[0, 2]]


def test_bare_unet_called_with_keywords(unet, evaluate):
    handle = apply(unet, HALF, record=True)
    sample, text = torch.zeros(1, 4, 8, 8), torch.zeros(1, 5, 8)
    for timestep in (9, 5, torch.tensor(5), torch.tensor([3.0]), 9, 1):
        unet(sample=sample, timestep=timestep, encoder_hidden_states=text)
    assert evaluations(handle)[0] == [[0, 1, 2, 3], [0, 1]]


def test_new_generation_tells_what_timesteps_cannot(unet, evaluate):
    handle = apply(unet, HALF, record=True)
    evaluate(unet)
    evaluate(unet)
    handle.new_generation()
    handle.new_generation()  # nothing happened in between: the same generation
    evaluate(unet)
    assert evaluations(handle) == ([[0, 1], [0]], [[0], [0]])


def test_new_generation_on_a_pipeline_is_counted_once(pipe, paint):
    handle = apply(pipe, HALF, record=True)
    paint(pipe)
    handle.new_generation()
    paint(pipe)
    assert evaluations(handle)[0] == [[0, 1, 2, 3, 4]] * 2


def test_a_hand_written_loop_over_the_pipelines_scheduler(pipe):
    handle = apply(pipe, HALF, record=True)
    for _ in range(2):
        pipe.scheduler.set_timesteps(4)
        latents = torch.zeros(1, 4, 8, 8)
        for t in pipe.scheduler.timesteps:
            noise = pipe.unet(latents, t, torch.zeros(1, 5, 8)).sample
            latents = pipe.scheduler.step(noise, t, latents).prev_sample
    assert evaluations(handle)[0] == [[0, 1, 2, 3, 4]] * 2


def test_timesteps_that_jump_back_stay_in_their_generation():
    class Scheduler:
        timesteps = torch.tensor([9, 5, 9, 5, 1])

    clock, scheduler = Clock(), Scheduler()
    assert [clock.tick(t, scheduler) for t in scheduler.timesteps] == [True] + [False] * 4
    scheduler.timesteps = scheduler.timesteps.clone()
    assert clock.tick(9, scheduler)
    assert (clock.generation, clock.step) == (1, 0)


def test_what_the_official_cache_carries_over(make_pipeline, paint):
    def run(cache):
        pipe = make_pipeline()
        refresh = Checkpoints([0, 8, 11, 13, 20])
        recorder = Recorder(pairs=True)
        handle = apply(
            pipe,
            TokenMerging(Threshold(0.5), refresh, cache=cache, destinations="corner"),
            record=recorder,
        )
        images = [paint(pipe, steps=20, seed=seed) for seed in (0, 1)]
        return images, evaluations(handle)[1]

    official, matched = run("official")
    assert matched == [[0, 7, 10, 12, 19], [7, 10, 12, 19]]
    fresh, matched = run("fresh")
    assert matched == [[0, 8, 11, 13, 20]] * 2
    # The second image of the official run was begun with the first image's match.
    pipe = make_pipeline()
    apply(
        pipe,
        TokenMerging(Threshold(0.5), Checkpoints([0, 7, 10, 12, 19]), destinations="corner"),
    )
    alone = [paint(pipe, steps=20, seed=seed) for seed in (0, 1)]
    assert torch.equal(official[0], alone[0])
    assert not torch.equal(official[1], alone[1])
    assert not torch.equal(official[0], fresh[0])


def test_clearing_ends_the_carrying_over(pipe, paint):
    method = TokenMerging(Ratio(0.5), Checkpoints([4]), cache="official")
    handle = apply(pipe, method, record=True)
    paint(pipe)
    paint(pipe)
    handle.clear()
    paint(pipe)
    assert evaluations(handle)[1] == [[0, 3], [3], [0, 3]]


def test_every_step_holds_no_match_over(pipe, paint):
    handle = apply(pipe, TokenMerging(Ratio(0.5), EveryStep()), record=True)
    paint(pipe)
    assert evaluations(handle)[1] == [[0, 1, 2, 3, 4]]
    assert handle.matched
    assert (handle.clock.generation, handle.clock.step) == (0, 4)
