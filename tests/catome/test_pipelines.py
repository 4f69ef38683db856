"""Small random pipelines of the true classes: how many rows their images have, what is cached over
their steps, and whether a threshold leaves images independent. They make the table in the docs:

CATOME_WRITE_DOCS=1 python -m pytest tests/catome/test_pipelines.py -k page
"""

import inspect
import os
import re
import warnings
from functools import cache

import diffusers
import pytest
import torch
from commands import ROOT
from diffusers import (
    AutoencoderKL,
    ControlNetModel,
    DDIMScheduler,
    DDPMScheduler,
    LCMScheduler,
    MotionAdapter,
    PNDMScheduler,
    StableDiffusionPanoramaPipeline,
    StableDiffusionPipeline,
    StableDiffusionSAGPipeline,
    T2IAdapter,
    UNet2DConditionModel,
)

from catome import Checkpoints, Interval, Ratio, Threshold, TokenMerging, apply, remove
from catome.pipelines import NO_ROWS, ROWS

PAGE = ROOT / "docs" / "library-pipelines.md"
METHOD = TokenMerging(Threshold(0.55), Interval(2))


def unet(channels=4, **config):
    torch.manual_seed(0)
    settings = {
        "sample_size": 8,
        "in_channels": channels,
        "layers_per_block": 1,
        "block_out_channels": (16, 32),
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
        "cross_attention_dim": 8,
        "attention_head_dim": 2,
        "norm_num_groups": 4,
    }
    return UNet2DConditionModel(**{**settings, **config}).eval().requires_grad_(False)


def xl(channels=4):
    return unet(
        channels,
        addition_embed_type="text_time",
        addition_time_embed_dim=4,
        projection_class_embeddings_input_dim=6 * 4 + 8,
    )


def vae(levels=2):
    torch.manual_seed(0)
    return AutoencoderKL(
        block_out_channels=(8,) * levels, norm_num_groups=4, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
    ).eval().requires_grad_(False)  # fmt: skip


def ddim():
    return DDIMScheduler(steps_offset=1, clip_sample=False)


def controlnet(of):
    return ControlNetModel.from_unet(of, conditioning_embedding_out_channels=(4, 8)).eval()


def t2i_adapter():
    return T2IAdapter(in_channels=3, channels=[16, 32], num_res_blocks=1, downscale_factor=2)


def motion():
    return MotionAdapter(
        block_out_channels=(16, 32), motion_layers_per_block=1, motion_num_attention_heads=2,
        motion_norm_num_groups=4, use_motion_mid_block=False,
    )  # fmt: skip


PAG = {"pag_applied_layers": ["down_blocks.0", "mid"]}  # blocks that merge, and others
SCALE = {"pag_scale": 3.0}
WHOLE = {"strength": 1.0}
NEARLY = {"strength": 0.99}
FRAMES = {"num_frames": 2}
INSTRUCTED = {"image_guidance_scale": 1.5}

# {class: (its parts beside the usual ones, arguments of its call beside the usual ones)}
CASES = {
    "AltDiffusionImg2ImgPipeline": (dict, WHOLE),
    "AltDiffusionPipeline": (dict, {}),
    "AnimateDiffPAGPipeline": (lambda: {"motion_adapter": motion(), **PAG}, FRAMES | SCALE),
    "AnimateDiffPipeline": (lambda: {"motion_adapter": motion()}, FRAMES),
    "AnimateDiffSDXLPipeline": (lambda: {"motion_adapter": motion(), "unet": xl()}, FRAMES),
    "LatentConsistencyModelImg2ImgPipeline": (
        lambda: {"unet": unet(time_cond_proj_dim=8), "scheduler": LCMScheduler()},
        WHOLE,
    ),
    "LatentConsistencyModelPipeline": (
        lambda: {"unet": unet(time_cond_proj_dim=8), "scheduler": LCMScheduler()},
        {},
    ),
    "StableDiffusionAdapterPipeline": (lambda: {"adapter": t2i_adapter()}, {}),
    "StableDiffusionControlNetImg2ImgPipeline": (lambda: {"controlnet": controlnet(unet())}, WHOLE),
    "StableDiffusionControlNetInpaintPipeline": (
        lambda: {"controlnet": controlnet(unet()), "unet": unet(9)},
        {},
    ),
    "StableDiffusionControlNetPAGInpaintPipeline": (
        lambda: {"controlnet": controlnet(unet()), "unet": unet(9), **PAG},
        SCALE,
    ),
    "StableDiffusionControlNetPAGPipeline": (
        lambda: {"controlnet": controlnet(unet()), **PAG},
        SCALE,
    ),
    "StableDiffusionControlNetPipeline": (lambda: {"controlnet": controlnet(unet())}, {}),
    "StableDiffusionDepth2ImgPipeline": (
        lambda: {"unet": unet(5)},
        {**WHOLE, "depth_map": torch.rand(2, 16, 16, generator=torch.Generator().manual_seed(2))},
    ),
    "StableDiffusionImg2ImgPipeline": (dict, WHOLE),
    "StableDiffusionInpaintPipeline": (lambda: {"unet": unet(9)}, {}),
    "StableDiffusionInstructPix2PixPipeline": (lambda: {"unet": unet(8)}, INSTRUCTED),
    "StableDiffusionLDM3DPipeline": (dict, {"output_type": "np"}),
    "StableDiffusionModelEditingPipeline": (dict, {}),
    "StableDiffusionPAGImg2ImgPipeline": (lambda: {**PAG}, WHOLE | SCALE),
    "StableDiffusionPAGInpaintPipeline": (lambda: {"unet": unet(9), **PAG}, SCALE),
    "StableDiffusionPAGPipeline": (lambda: {**PAG}, SCALE),
    "StableDiffusionPipeline": (dict, {}),
    "StableDiffusionSAGPipeline": (dict, {"sag_scale": 1.0}),
    "StableDiffusionUpscalePipeline": (
        lambda: {"unet": unet(7, num_class_embeds=1000), "low_res_scheduler": DDPMScheduler()},
        {},
    ),
    "StableDiffusionXLAdapterPipeline": (lambda: {"adapter": t2i_adapter(), "unet": xl()}, {}),
    "StableDiffusionXLControlNetImg2ImgPipeline": (
        lambda: {"controlnet": controlnet(xl()), "unet": xl()},
        WHOLE,
    ),
    "StableDiffusionXLControlNetInpaintPipeline": (
        lambda: {"controlnet": controlnet(xl()), "unet": xl()},
        NEARLY,
    ),
    "StableDiffusionXLControlNetPAGImg2ImgPipeline": (
        lambda: {"controlnet": controlnet(xl()), "unet": xl(), **PAG},
        WHOLE | SCALE,
    ),
    "StableDiffusionXLControlNetPAGPipeline": (
        lambda: {"controlnet": controlnet(xl()), "unet": xl(), **PAG},
        SCALE,
    ),
    "StableDiffusionXLControlNetPipeline": (
        lambda: {"controlnet": controlnet(xl()), "unet": xl()},
        {},
    ),
    "StableDiffusionXLImg2ImgPipeline": (lambda: {"unet": xl()}, WHOLE),
    "StableDiffusionXLInpaintPipeline": (lambda: {"unet": xl()}, NEARLY),
    "StableDiffusionXLInstructPix2PixPipeline": (lambda: {"unet": xl(8)}, INSTRUCTED),
    "StableDiffusionXLPAGImg2ImgPipeline": (lambda: {"unet": xl(), **PAG}, WHOLE | SCALE),
    "StableDiffusionXLPAGInpaintPipeline": (lambda: {"unet": xl(), **PAG}, NEARLY | SCALE),
    "StableDiffusionXLPAGPipeline": (lambda: {"unet": xl(), **PAG}, SCALE),
    "StableDiffusionXLPipeline": (lambda: {"unet": xl()}, {}),
}
# By the same rules, from their source; they need packages or inputs that the tests do not have.
NOT_RUN = {
    "AnimateDiffControlNetPipeline",
    "AnimateDiffSparseControlNetPipeline",
    "AnimateDiffVideoToVideoControlNetPipeline",
    "AnimateDiffVideoToVideoPipeline",
    "KolorsImg2ImgPipeline",
    "KolorsPAGPipeline",
    "KolorsPipeline",
    "LEditsPPPipelineStableDiffusion",
    "LEditsPPPipelineStableDiffusionXL",
    "PIAPipeline",
    "StableDiffusionXLControlNetUnionImg2ImgPipeline",
    "StableDiffusionXLControlNetUnionInpaintPipeline",
    "StableDiffusionXLControlNetUnionPipeline",
}


def made(cls, **parts):
    """A pipeline of a class from its parts; those it has no use for are left out."""
    usual = {"vae": vae, "unet": unet, "scheduler": ddim}
    usual = {name: make() for name, make in usual.items() if name not in parts}
    every = {**usual, "requires_safety_checker": False, "add_watermarker": None, **parts}
    names = inspect.signature(cls.__init__).parameters
    given = {n: every.get(n) for n, p in names.items() if n in every or p.default is p.empty}
    given.pop("self")
    pipe = cls(**given)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def paint(pipe, images, guidance=4.0, steps=4, **more):
    """What a pipeline makes of some of two seeded prompts, pictures and noises."""
    images = list(images)
    generator = torch.Generator().manual_seed(5)
    prompts, negative = torch.randn(2, 2, 5, 8, generator=generator)
    pooled = torch.randn(2, 8, generator=generator)
    pictures = torch.rand(2, 3, 16, 16, generator=generator)
    more = {k: v[images] if isinstance(v, torch.Tensor) else v for k, v in more.items()}
    given = {
        "prompt_embeds": prompts[images],
        "negative_prompt_embeds": negative[images],
        "pooled_prompt_embeds": pooled[images],
        "negative_pooled_prompt_embeds": -pooled[images],
        **dict.fromkeys(("image", "control_image"), pictures[images]),
        "mask_image": (pictures[images, :1] > 0.5).float(),
        "num_inference_steps": steps,
        "guidance_scale": guidance,
        "generator": [torch.Generator().manual_seed(i) for i in images],
        "output_type": "latent",
        "height": 16,
        "width": 16,
        **more,
    }
    known = inspect.signature(pipe.__call__).parameters
    return torch.as_tensor(pipe(**{k: v for k, v in given.items() if k in known})[0])


def steps_of(handle):
    """[[(rows, matched anew) of the first block's evaluations] of each step] of each generation."""
    found = {}
    for r in handle.records:
        if r.block == handle.blocks[0]:
            parts = found.setdefault(r.generation, {}).setdefault(r.step, [])
            parts.append((len(r.tokens_out), r.matched))
    return [list(steps.values()) for steps in found.values()]


def alone_and_beside(pipe, method, copies=None, **call):
    """How far an image beside another is from the same image alone, relative to its range, what
    merging changed, and the handle."""
    plain = paint(pipe, (0, 1), **call)
    with apply(pipe, method, copies=copies, record=True) as handle:
        beside = paint(pipe, (0, 1), **call)
        alone = torch.cat([paint(pipe, [i], **call) for i in (0, 1)])
    scale = beside.abs().max()
    return ((alone - beside).abs().max() / scale).item(), (plain - beside).abs().max(), handle


def rows_by_part(handle, images=2):
    per_image = images * (2 if "Motion" in type(handle._unet()).__name__ else 1)  # two frames each
    return [rows / per_image for rows, _ in steps_of(handle)[0][0]]


@cache
def line(name):
    """A pipeline's line in the table, from what it does."""
    parts, call = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe = made(getattr(diffusers, name), **parts())
        guides = "LatentConsistency" not in name
        with apply(pipe, TokenMerging(Ratio(0.5), Interval(2)), record=True) as handle:
            paint(pipe, (0, 1), **call)
        rows, steps = rows_by_part(handle), steps_of(handle)
        with apply(pipe, TokenMerging(Ratio(0.5)), record=True) as unguided:
            paint(pipe, (0, 1), guidance=1.0, steps=2, **call)
        told, why = {}, "yes"
        if name not in ROWS:
            with pytest.raises(ValueError, match=r"^copies=None: .* does not tell"):
                apply(pipe, METHOD)
            told, why = {"copies": int(rows[0])}, f"with `copies={rows[0]:.0f}`"
        difference, changed, adaptive = alone_and_beside(pipe, METHOD, **told, **call)
    assert changed > 1e-3, name
    assert difference < 1e-4
    assert len({r.tokens_out for r in adaptive.records}) > 3  # images have numbers of their own
    said = " and ".join(f"{r:.0f}" for r in rows)
    without = " and ".join(f"{r:.0f}" for r in rows_by_part(unguided))
    cached = len(steps) == 1 and all(
        matched == (step % 2 == 0) for step, of in enumerate(steps[0]) for _, matched in of
    )
    rows_said = f"{said} with guidance, {without} without" if guides else said
    return f"| {name} | {rows_said} | {'yes' if cached else 'no'} | {why} |"


@pytest.mark.parametrize("name", CASES)
def test_a_line_of_the_page(name):
    assert line(name) in PAGE.read_text("utf-8").splitlines()


def test_the_page_has_each_line_once():
    begin, end = "<!-- table -->", "<!-- end of table -->"
    text = PAGE.read_text("utf-8")
    if os.environ.get("CATOME_WRITE_DOCS"):
        head = "| pipeline | rows of an image | cached over steps | a threshold, by image |"
        table = "\n".join([head, "|---|---|---|---|", *map(line, CASES)])
        refused = "\n".join(f"- `{name}` {why}." for name, why in NO_ROWS.items())
        read = ", ".join(f"`{name}`" for name in sorted(NOT_RUN))
        for mark, content in (("table", table), ("refused", refused), ("read", read)):
            text = re.sub(
                f"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)",
                lambda found, content=content: f"{found[1]}\n{content}\n\n{found[2]}",
                text,
                flags=re.DOTALL,
            )
        PAGE.write_text(text, "utf-8")
    table = text.split(begin)[1].split(end)[0]
    assert re.findall(r"^\| (\w+Pipeline\w*) \|", table, flags=re.MULTILINE) == list(CASES)
    assert all(f"- `{name}` {why}.\n" in text for name, why in NO_ROWS.items())
    assert set(re.findall(r"`(\w+)`", text.split("read -->")[1])) == NOT_RUN
    assert set(ROWS) == set(CASES) & set(ROWS) | NOT_RUN | {"StableDiffusionPanoramaPipeline"}
    assert all(hasattr(diffusers, name) for name in [*ROWS, *NO_ROWS])


@pytest.mark.parametrize(
    ("name", "call", "rows"),
    [
        ("StableDiffusionInstructPix2PixPipeline", {"image_guidance_scale": 1.5}, 3),
        ("StableDiffusionInstructPix2PixPipeline", {"image_guidance_scale": 0.5}, 1),
        ("StableDiffusionPAGPipeline", {"pag_scale": 3.0}, 3),
        ("StableDiffusionPAGPipeline", {"pag_scale": 0.0}, 2),
        ("StableDiffusionPAGPipeline", {"pag_scale": 3.0, "guidance": 1.0}, 2),
        ("StableDiffusionXLPAGPipeline", {"pag_scale": 3.0}, 3),
    ],
)
def test_rows_of_the_present_evaluation(name, call, rows):
    """Two images of three rows make six, an even number."""
    pipe = made(getattr(diffusers, name), **CASES[name][0]())
    difference, changed, handle = alone_and_beside(pipe, METHOD, **call)
    assert (rows_by_part(handle), changed > 1e-3) == ([rows], True)
    assert difference < 1e-4
    # The unpatched pipeline is back, also where it set processors of its own in between.
    remove(pipe)
    assert torch.equal(paint(pipe, (0, 1), **call), paint(pipe, (0, 1), **call))


@pytest.mark.parametrize("merge", [("attn1",), ("attn1", "attn2", "ff")])
def test_perturbed_attention_in_a_merged_block(merge):
    """Its layers split their rows in three: those of one image come together."""
    pipe = made(diffusers.StableDiffusionPAGPipeline, pag_applied_layers=["down_blocks.0"])
    method = TokenMerging(Threshold(0.55), merge=merge)
    difference, _, handle = alone_and_beside(pipe, method, **SCALE)
    assert difference < 1e-4
    assert any(len(set(r.tokens_out)) > 1 for r in handle.records)


def test_copies_that_are_not_the_pipelines_are_refused():
    pipe = made(diffusers.StableDiffusionPAGPipeline, **PAG)
    apply(pipe, METHOD, copies=2)
    with pytest.raises(ValueError, match=r"^copies=2: StableDiffusionPAGPipeline has 3 rows"):
        paint(pipe, (0, 1), **SCALE)


def test_a_subclass_with_a_call_of_its_own_has_to_say():
    class Inherits(StableDiffusionPipeline):
        pass

    class Calls(StableDiffusionPipeline):
        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs)

    assert apply(made(Inherits), METHOD)
    with pytest.raises(ValueError, match=r"^copies=None: Calls does not tell .* pass copies"):
        apply(made(Calls), METHOD)


@pytest.mark.parametrize("name", NO_ROWS)
def test_no_number_of_rows_fits(name):
    """Refused whatever copies are passed, and the advice works."""
    cls = getattr(diffusers, name)
    pipe = cls.__new__(cls)
    vars(pipe)["unet"] = unet()
    for copies in (None, 1, 2):
        with pytest.raises(ValueError, match=f"^count='image': {name} .*; pass count='batch' or"):
            apply(pipe, METHOD, copies=copies)
    assert apply(pipe, TokenMerging(Threshold(0.55), count="batch"))
    assert apply(pipe, TokenMerging(Ratio(0.5)))


def test_a_pipeline_that_was_never_called_does_not_tell():
    pipe = made(StableDiffusionPipeline)
    apply(pipe, METHOD)
    with pytest.raises(ValueError, match=r"^copies=None: StableDiffusionPipeline tells its guid"):
        pipe.unet(torch.zeros(2, 4, 8, 8), 1, torch.zeros(2, 5, 8))


@pytest.mark.parametrize("select", [Ratio(0.5), Threshold(0.55)])
@pytest.mark.parametrize("guidance", [4.0, 1.0])
def test_both_evaluations_of_self_attention_guidance_keep_their_own_match(select, guidance):
    """Unguided, both have as many rows."""
    pipe = made(StableDiffusionSAGPipeline)
    rows = 2 if guidance > 1 else 1
    with apply(pipe, TokenMerging(select, Checkpoints([0, 2])), copies=rows, record=True) as handle:
        paint(pipe, (0, 1), guidance=guidance, sag_scale=1.0)
        held = [[one for one in block.held.values()] for block in handle._blocks]
    step = [(2 * rows, True), (2, True)], [(2 * rows, False), (2, False)]
    assert steps_of(handle) == [[step[0], step[1], step[0], step[1]]]
    assert all(len(one) == 2 for one in held)


def test_rows_that_drop_out_are_of_the_same_images(make_unet):
    """As when guidance is left out by whoever calls the U-Net, for which the pipeline has no flag:
    two rows of two images, not one image twice."""
    pipe = made(StableDiffusionPipeline, unet=make_unet())
    paint(pipe, (0, 1))
    handle = apply(pipe, METHOD, record=True)
    pipe.scheduler.set_timesteps(2)
    sample = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    sample[1::2] = sample[1::2].mean((2, 3), keepdim=True) + 0.3 * sample[1::2]
    for t, rows in zip(pipe.scheduler.timesteps, (4, 2), strict=True):
        pipe.unet(sample[:rows], t, torch.zeros(rows, 5, 8))
    first, dropped = (handle.records[i].tokens_out for i in (0, 3))
    assert first[:2] == first[2:]
    assert len(dropped) == 2
    assert dropped[0] != dropped[1]


@pytest.mark.parametrize("scheduler", [ddim, lambda: PNDMScheduler(skip_prk_steps=True)])
@pytest.mark.parametrize("select", [Ratio(0.5), Threshold(0.55)])
def test_a_panorama_is_one_generation_and_each_view_keeps_its_match(scheduler, select):
    """It sets the scheduler to a copy of its state for each view."""
    pipe = made(StableDiffusionPanoramaPipeline, scheduler=scheduler(), vae=vae(4))
    with apply(pipe, TokenMerging(select, Interval(2)), record=True) as handle:
        for _ in range(2):
            paint(pipe, [0], steps=3, height=512, width=576)
    steps = steps_of(handle)
    assert len(steps) == 2
    views = [(2, True)] * 2, [(2, False)] * 2
    assert all(of == views[i % 2] for one in steps for i, of in enumerate(one))
    assert len(steps[0]) >= 3


def test_views_in_one_batch_alternate_their_rows():
    pipe = made(StableDiffusionPanoramaPipeline, vae=vae(4))
    apply(pipe, METHOD)
    with pytest.raises(ValueError, match=r"^view_batch_size: must be 1"):
        paint(pipe, [0], steps=1, height=512, width=576, view_batch_size=2)
    apply(pipe, TokenMerging(Threshold(0.55), count="batch"))
    assert paint(pipe, [0], steps=1, height=512, width=576, view_batch_size=2).isfinite().all()
