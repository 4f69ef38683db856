"""U-Nets of the true architectures with seeded random weights, made on the device."""

from __future__ import annotations

import copy
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor

SD15 = {
    "sample_size": 64,
    "cross_attention_dim": 768,
    "attention_head_dim": 8,
}
SDXL = {
    "sample_size": 128,
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
ARCHITECTURES = {"sd15": SD15, "sdxl": SDXL}
FINEST = {"sd15": 1, "sdxl": 2}  # downsampling of the finest blocks with self-attention


def build_unet(architecture: str, dtype: torch.dtype, where: torch.device) -> UNet2DConditionModel:
    torch.manual_seed(0)
    with torch.device(where):
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            unet = UNet2DConditionModel(**ARCHITECTURES[architecture])
        finally:
            torch.set_default_dtype(default)
    return unet.eval().requires_grad_(False)


def twin(unet: UNet2DConditionModel) -> UNet2DConditionModel:
    """A copy that can be patched by itself and shares the weights."""
    tensors = [*unet.parameters(), *unet.buffers()]
    return copy.deepcopy(unet, {id(t): t for t in tensors})


def inputs(
    architecture: str, pixels: int, rows: int, dtype: torch.dtype, where: torch.device
) -> dict[str, Any]:
    """Arguments of a U-Net: noise, a timestep and text of one image's `rows` / 2 prompts.

    The noise is smooth in space, so that tokens are similar to their neighbours as in latents
    rather than all alike or all different.
    """
    generator = torch.Generator().manual_seed(0)
    config, side = ARCHITECTURES[architecture], pixels // 8
    coarse = torch.randn(rows, 4, side // 8, side // 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
    noise = torch.randn(rows, 4, side, side, generator=generator)
    text = torch.randn(rows, 77, config["cross_attention_dim"], generator=generator)
    given: dict[str, Any] = {
        "sample": (smooth + 0.5 * noise).to(where, dtype),
        "timestep": 500,
        "encoder_hidden_states": text.to(where, dtype),
    }
    if architecture == "sdxl":
        pooled = torch.randn(rows, 1280, generator=generator)
        sizes: Tensor = torch.tensor([[pixels, pixels, 0, 0, pixels, pixels]] * rows)
        given["added_cond_kwargs"] = {
            "text_embeds": pooled.to(where, dtype),
            "time_ids": sizes.to(where, dtype),
        }
    return given
