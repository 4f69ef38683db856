"""The toy world's architectures: the true Diffusers and Transformers classes at small sizes.

`build_*` return freshly initialised modules (seed torch before calling). Together, the
autoencoder, the text encoder with its tokenizer and the U-Net are what
`StableDiffusionPipeline.from_pretrained` loads; the scorer is a `CLIPModel`.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from diffusers import (
    AutoencoderKL,
    PNDMScheduler,
    UNet2DConditionModel,
)
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    CLIPVisionConfig,
)

from experiments.toy import scenes

LATENT_CHANNELS = 3
LATENT_SIZE = scenes.SIZE // 4
MAX_TOKENS = 32
TEXT_WIDTH = 128
FEATURES = 64
HEADS = 4  # attention heads of the U-Net; any divisor of 32 loads the same weights


def all_words() -> list[str]:
    phrases = [
        *scenes.SIZES,
        *scenes.COLOURS,
        *scenes.SHAPES,
        *scenes.BACKGROUNDS,
        *scenes.RELATIONS,
        "a on background",
    ]
    return sorted({word for phrase in phrases for word in phrase.split()})


def learn_merges(words: list[str]) -> list[tuple[str, str]]:
    """Byte-pair merges, most frequent pair first, until every word is one piece.

    Ties go to the later pair in the alphabet, so that the same words give the same ids always.
    """
    spelled = [[*word[:-1], word[-1] + "</w>"] for word in words]
    merges = []
    while pairs := Counter(pair for pieces in spelled for pair in pairwise(pieces)):
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        spelled = [_merge(pieces, best) for pieces in spelled]
    return merges


def _merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for piece in pieces:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out


def write_tokenizer_files(folder: Path) -> Path:
    """CLIP's byte-level BPE over the captions' own words, each of which becomes one token."""
    alphabet = sorted(ByteLevel.alphabet())
    merges = learn_merges(all_words())
    pieces = alphabet + [a + "</w>" for a in alphabet] + [a + b for a, b in merges]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
    lines = ["#version: 0.2", *(f"{a} {b}" for a, b in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def build_tokenizer(folder: Path) -> CLIPTokenizer:
    """Write the vocabulary under `folder` and load it as a CLIPTokenizer of 32 tokens."""
    write_tokenizer_files(folder)
    return CLIPTokenizer(
        vocab=str(folder / "vocab.json"),
        merges=str(folder / "merges.txt"),
        model_max_length=MAX_TOKENS,
    )


def text_config(tokenizer: CLIPTokenizer) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=TEXT_WIDTH,
        intermediate_size=2 * TEXT_WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        projection_dim=FEATURES,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def build_text_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    return CLIPTextModel(text_config(tokenizer))


def build_scorer(tokenizer: CLIPTokenizer) -> CLIPModel:
    vision = CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=64,
        patch_size=8,
        projection_dim=FEATURES,
    )
    return CLIPModel(
        CLIPConfig(
            text_config=text_config(tokenizer).to_dict(),
            vision_config=vision.to_dict(),
            projection_dim=FEATURES,
        )
    )


def build_image_processor() -> CLIPImageProcessor:
    return CLIPImageProcessor(
        size={"shortest_edge": 64},
        crop_size={"height": 64, "width": 64},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )


def build_vae() -> AutoencoderKL:
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(16, 32, 64),
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=8,
        sample_size=scenes.SIZE,
        scaling_factor=1.0,
        mid_block_add_attention=False,
    )


def build_unet(heads: int = HEADS) -> UNet2DConditionModel:
    return UNet2DConditionModel(
        sample_size=LATENT_SIZE,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        block_out_channels=(32, 64, 128),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",) * 3,
        up_block_types=("CrossAttnUpBlock2D",) * 3,
        cross_attention_dim=TEXT_WIDTH,
        attention_head_dim=heads,  # Diffusers' name for the number of heads
        norm_num_groups=8,
    )


def build_scheduler() -> PNDMScheduler:
    """PLMS. The last training timestep is all but noise (alpha_bar 4e-5), so that the colour of
    a background cannot be read off the noise in training and has to come from the caption."""
    return PNDMScheduler(
        num_train_timesteps=1000,
        beta_start=1e-4,
        beta_end=0.02,
        beta_schedule="linear",
        prediction_type="v_prediction",
        skip_prk_steps=True,
        steps_offset=1,
    )


class Judge(nn.Module):
    """A classifier of scenes: (B, 3, 128, 128) in [-1, 1] to logits by attribute.

    Object `a` is the left or upper one (or the only one), `b` the other.
    """

    HEADS: ClassVar = {
        "background": tuple(scenes.BACKGROUNDS),
        "layout": ("single", "beside", "stacked"),
        **{
            f"{which}_{what}": tuple(values)
            for which in "ab"
            for what, values in (
                ("size", scenes.SIZES),
                ("colour", scenes.COLOURS),
                ("shape", scenes.SHAPES),
            )
        },
    }

    def __init__(self, width: int = 32):
        super().__init__()
        layers, channels = [nn.AvgPool2d(2)], 3
        for out in (width, 2 * width, 3 * width, 4 * width):
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
            channels = out
        layers += [nn.Flatten(), nn.Linear(channels * 16, 256), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.heads = nn.ModuleDict({k: nn.Linear(256, len(v)) for k, v in self.HEADS.items()})

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.trunk(images)
        return {name: head(hidden) for name, head in self.heads.items()}
