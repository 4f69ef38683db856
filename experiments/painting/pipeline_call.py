"""One call of a pipeline: prompts in, images out, each from its own seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from diffusers import (
    StableDiffusionPipeline,
)
from omegaconf import DictConfig
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.painting.store import Prompt


@contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """`math`: plain matrix products and a softmax. `fused`: what PyTorch chooses by itself."""
    if name == "math":
        with sdpa_kernel(SDPBackend.MATH):
            yield
    else:
        yield


def first_noise(pipe: StableDiffusionPipeline, cfg: DictConfig, prompts: list[Prompt]):
    """(B, C, h, w) initial latents, each from its image's own seed, drawn in fp32 on the CPU: the
    same for every method, batch, dtype and device."""
    factor = pipe.vae_scale_factor
    shape = (
        pipe.unet.config.in_channels,
        cfg.generation.height // factor,
        cfg.generation.width // factor,
    )
    rows = [torch.randn(shape, generator=torch.Generator().manual_seed(p.seed)) for p in prompts]
    return torch.stack(rows).to(pipe.device, pipe.unet.dtype)


@torch.no_grad()
def generate(
    pipe: StableDiffusionPipeline, cfg: DictConfig, prompts: list[Prompt]
) -> list[Image.Image | None]:
    """One call of the pipeline: an image for each prompt, None where its values are not finite."""
    options = cfg.generation
    negative = options.negative_prompt
    with attention_backend(cfg.attention):
        arrays = pipe(
            prompt=[p.text for p in prompts],
            negative_prompt=None if negative is None else [negative] * len(prompts),
            latents=first_noise(pipe, cfg, prompts),
            # For schedulers that draw noise along the way; none that steers the first latents.
            generator=[torch.Generator().manual_seed(p.seed + 2**32) for p in prompts],
            num_inference_steps=options.steps,
            guidance_scale=options.guidance_scale,
            height=options.height,
            width=options.width,
            output_type="np",  # in a PIL image NaN would be black
        ).images
    finite = np.isfinite(arrays).all(axis=(1, 2, 3))
    images = pipe.image_processor.numpy_to_pil(np.nan_to_num(arrays))
    return [image if good else None for image, good in zip(images, finite, strict=True)]
