"""Stable Diffusion v1.5's architecture with seeded random weights and CLIP's own vocabulary.

The true classes and block layout, fewer channels: what loads, patches, paints and scores it is the
code that the real weights go through.
"""

import gzip
import json
from pathlib import Path

import open_clip
import torch
from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from open_clip.tokenizer import bytes_to_unicode
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    CLIPVisionConfig,
)

WIDTH = 64  # of the text encoder; 768 in v1.5


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """CLIP's tokenizer of 49,408 pieces, from the merges that open_clip's package carries."""
    packed = Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz"
    lines = gzip.decompress(packed.read_bytes()).decode().split("\n")
    merges = lines[1 : 49152 - 256 - 2 + 1]
    alphabet = list(bytes_to_unicode().values())
    pieces = alphabet + [a + "</w>" for a in alphabet] + ["".join(m.split()) for m in merges]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", "utf-8")
    return CLIPTokenizer(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"), model_max_length=77
    )


def text_config(tokenizer: CLIPTokenizer) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=2 * WIDTH,
        num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=77,
        projection_dim=32, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip


def unet(channels=(32, 64, 96, 96), context=WIDTH, groups=8) -> UNet2DConditionModel:
    """v1.5's layout: attention at the latent's own resolution in 2 blocks down and 3 up."""
    return UNet2DConditionModel(
        sample_size=64, in_channels=4, out_channels=4, layers_per_block=2,
        block_out_channels=channels, cross_attention_dim=context, attention_head_dim=8,
        norm_num_groups=groups,
        down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
    )  # fmt: skip


def save_pipeline(folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    tokenizer = clip_tokenizer(folder.parent / "clip_vocabulary")
    vae = AutoencoderKL(
        block_out_channels=(16, 32, 32, 32), latent_channels=4, layers_per_block=1,
        norm_num_groups=8, sample_size=512, scaling_factor=0.18215,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
    )  # fmt: skip
    scheduler = PNDMScheduler(
        num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012,
        beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1,
    )  # fmt: skip
    StableDiffusionPipeline(
        vae=vae, text_encoder=CLIPTextModel(text_config(tokenizer)), tokenizer=tokenizer,
        unet=unet(), scheduler=scheduler, safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def save_clip(folder: Path, seed: int = 1) -> Path:
    torch.manual_seed(seed)
    tokenizer = clip_tokenizer(folder.parent / "clip_vocabulary")
    vision = CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        image_size=64, patch_size=16, projection_dim=32,
    )  # fmt: skip
    config = CLIPConfig(
        text_config=text_config(tokenizer).to_dict(), vision_config=vision.to_dict(),
        projection_dim=32,
    )  # fmt: skip
    CLIPModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(
        size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}
    ).save_pretrained(folder)
    return folder
