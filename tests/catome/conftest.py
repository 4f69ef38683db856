"""Tiny random models with the shapes of Stable Diffusion's, handed out as functions."""

import pytest
import torch
from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel


def _make_unet(attention="first", seed=0, **config):
    """A U-Net with attention at the latent's own resolution ("first") or only below ("deep")."""
    torch.manual_seed(seed)
    cross = ["CrossAttn", ""] if attention == "first" else ["", "CrossAttn"]
    settings = {
        "sample_size": 8,
        "layers_per_block": 1,
        "block_out_channels": (16, 32),
        "down_block_types": [f"{c}DownBlock2D" for c in cross],
        "up_block_types": [f"{c}UpBlock2D" for c in reversed(cross)],
        "cross_attention_dim": 8,
        "attention_head_dim": 2,
        "norm_num_groups": 4,
    }
    return UNet2DConditionModel(**{**settings, **config}).eval().requires_grad_(False)


def _make_pipeline(scheduler=None, cls=StableDiffusionPipeline, unet=None):
    """A pipeline without text encoder (prompts are given as embeddings)."""
    unet = unet or _make_unet()
    torch.manual_seed(0)
    vae = AutoencoderKL(block_out_channels=(8, 8), norm_num_groups=4, latent_channels=4)
    pipe = cls(
        vae=vae.eval().requires_grad_(False),
        text_encoder=None,
        tokenizer=None,
        unet=unet,
        scheduler=scheduler or PNDMScheduler(skip_prk_steps=True, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def _paint(pipe, images=1, steps=4, guidance=7.5, size=16, seed=0, **call):
    """Latents painted by a pipeline from seeded prompts and noise; guidance None: not passed."""
    prompts = torch.randn(2 * images, 5, 8, generator=torch.Generator().manual_seed(seed))
    if guidance is not None:
        call |= {"guidance_scale": guidance, "negative_prompt_embeds": prompts[images:]}
    if "image" not in call:
        call |= {"height": size, "width": size}
    return pipe(
        prompt_embeds=prompts[:images],
        num_inference_steps=steps,
        generator=[torch.Generator().manual_seed(seed + i) for i in range(images)],
        output_type="latent",
        **call,
    ).images


def _evaluate(unet, rows=2, size=(8, 8), timestep=10, seed=0):
    """The output of one seeded evaluation of a U-Net."""
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randn(rows, 4, *size, generator=generator).to(unet.dtype)
    text = torch.randn(rows, 5, 8, generator=generator).to(unet.dtype)
    return unet(sample, timestep, text).sample


@pytest.fixture
def make_unet():
    return _make_unet


@pytest.fixture
def make_pipeline():
    return _make_pipeline


@pytest.fixture
def paint():
    return _paint


@pytest.fixture
def evaluate():
    return _evaluate


@pytest.fixture
def unet():
    return _make_unet()


@pytest.fixture
def pipe():
    return _make_pipeline()
