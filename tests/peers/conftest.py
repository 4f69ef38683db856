"""Inputs for comparing with the peers, and their matches read back as plain maps."""

from typing import NamedTuple

import pytest
import torch
from diffusers import UNet2DConditionModel
from torch.nn.functional import interpolate


class PeerMatch(NamedTuple):
    """What a peer's merge and unmerge closures do."""

    assignment: torch.Tensor  # (B, N) the token each token is merged into, itself if none
    short: torch.Tensor  # (B, L, C) merged tokens: unmerged sources, then destinations
    order: torch.Tensor  # (B, L) the token (destination) of each short row
    restored: torch.Tensor  # (B, N, C) un-merged again


def _tokens(height, width, rows=2, channels=64, seed=0, dtype=torch.float32):
    """Tokens of a smooth random field with noise: neighbours are similar, some more than others."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(rows, channels, 5, 5, generator=generator)
    field = interpolate(coarse, size=(height, width), mode="bicubic")
    noise = torch.randn(rows, channels, height, width, generator=generator)
    roughness = torch.rand(rows, 1, height, width, generator=generator)
    return (field + 1.5 * roughness * noise).flatten(2).mT.contiguous().to(dtype)


def _read(merge, unmerge, x, destinations):
    """A peer's closures as data, found by what they do to numbered rows."""
    rows, tokens, _ = x.shape
    short = merge(x)
    length = short.shape[1]
    numbers = torch.arange(length, dtype=torch.float32).view(1, length, 1).expand(rows, -1, 1)
    place = unmerge(numbers)[..., 0].long()  # (B, N) short row that each token is restored from
    owner = torch.full((rows, length), -1)
    token = torch.arange(tokens).expand(rows, -1)
    owner.scatter_(1, place, token)  # unmerged sources own their row
    owner.scatter_(1, place[:, destinations], destinations.expand(rows, -1))
    return PeerMatch(owner.gather(1, place), short, owner, unmerge(short))


def _make_unet():
    """SD v1's shape in small: attention at levels 1, 2, 4 and in the middle, 2 layers a block."""
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=24,
        block_out_channels=(32, 32, 64, 64),
        down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
        layers_per_block=2,
        cross_attention_dim=16,
        attention_head_dim=4,
        norm_num_groups=8,
    )
    return unet.eval().requires_grad_(False)


@pytest.fixture
def tokens():
    return _tokens


@pytest.fixture
def read():
    return _read


@pytest.fixture
def sd_unet():
    return _make_unet()
