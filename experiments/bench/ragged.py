"""Self-attention of images that keep different numbers of tokens: one by one, padded, or nested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.bench.measure import take_turns

MEMINFO = Path("/proc/meminfo")
HEADS, ROWS = 8, 2  # rows of an image: the two halves of guidance
ONE_BY_ONE, MASKED, NESTED = "one by one", "masked", "nested"
SCORES = 6  # tensors of all scores at once in nested attention by plain math: five did not fit


class SelfAttention(nn.Module):
    """As in a BasicTransformerBlock: projections without bias, eight heads, one projection back."""

    def __init__(self, channels: int):
        super().__init__()
        self.inward = nn.ModuleList(nn.Linear(channels, channels, bias=False) for _ in range(3))
        self.outward = nn.Linear(channels, channels)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (project(x).unflatten(-1, [HEADS, -1]).transpose(1, 2) for project in self.inward)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.outward(attended.transpose(1, 2).flatten(2))


def lengths(images: int, tokens: int) -> list[int]:
    """Tokens that each image keeps: a quarter to three quarters of all, evenly spread."""
    spread = torch.linspace(0.25, 0.75, images)
    return [int(share * tokens) for share in spread]


def attentions(
    images: int, tokens: int, channels: int, dtype: torch.dtype, where: torch.device
) -> dict[str, Callable[[], list[Tensor]]]:
    """Calls that give each image's output (2, its tokens, C), by the way they are attended to.

    Args:
        tokens: of an image before merging.
    """
    torch.manual_seed(0)
    attention = SelfAttention(channels).to(where, dtype).eval().requires_grad_(False)
    kept = lengths(images, tokens)
    parts = [torch.randn(ROWS, n, channels).to(where, dtype) for n in kept]
    counts = torch.tensor(kept, device=where).repeat_interleave(ROWS)
    present = torch.arange(max(kept), device=where) < counts[:, None]
    mask = present[:, None, None, :]

    def one_by_one() -> list[Tensor]:
        return [attention(part) for part in parts]

    def masked() -> list[Tensor]:
        padded = [F.pad(part, (0, 0, 0, max(kept) - part.shape[1])) for part in parts]
        whole = attention(torch.cat(padded), mask)
        return [own[:, :n] for own, n in zip(whole.split(ROWS), kept, strict=True)]

    def nested() -> list[Tensor]:
        rows = [row for part in parts for row in part]
        whole = attention(torch.nested.nested_tensor(rows, layout=torch.jagged)).unbind()
        return [torch.stack(whole[i : i + ROWS]) for i in range(0, len(whole), ROWS)]

    return {ONE_BY_ONE: one_by_one, MASKED: masked, NESTED: nested}


def ragged(
    images: int, tokens: int, channels: int, dtype: torch.dtype, where: torch.device, turns: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each way, the kernel that it ends in and how far it is from one by one.

    Nested tensors are left out where they cannot run, with the reason in their kernel's place.
    """
    calls = attentions(images, tokens, channels, dtype, where)
    expected = calls[ONE_BY_ONE]()
    kernels, differences = {}, {}
    lacking = memory_lacking(images, tokens, dtype, where)
    if lacking is not None:
        kernels[NESTED] = lacking
        del calls[NESTED]
    for name, call in list(calls.items()):
        try:
            found = call()
        except RuntimeError as error:
            if name != NESTED:
                raise
            kernels[name] = str(error).split("\n")[0]
            del calls[name]
            continue
        pairs = zip(found, expected, strict=True)
        differences[name] = max((a - b).abs().max().item() for a, b in pairs)
        kernels[name] = kernel(call)
    label = f"ragged, {images} images N={tokens} C={channels}"
    facts = {"kernel": kernels, "largest difference": differences}
    return take_turns(calls, turns, where, label), facts


def memory_lacking(images: int, tokens: int, dtype: torch.dtype, where: torch.device) -> str | None:
    """Why nested tensors are not tried: on CPUs they make all scores at once, and who asks for
    more memory than there is gets killed. None where they fit, or nothing is known."""
    if where.type != "cpu" or not MEMINFO.is_file():
        return None
    lines = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) / 2**20
    longest = max(lengths(images, tokens))
    needed = SCORES * images * ROWS * HEADS * longest**2 * dtype.itemsize / 2**30
    if needed < available:
        return None
    return f"needs {needed:.1f} GiB of memory, {available:.1f} are available"


def kernel(call: Callable[[], Any]) -> str:
    """What scaled_dot_product_attention dispatches to."""
    with torch.profiler.profile() as profile, torch.no_grad():
        call()
    names = {event.key.removeprefix("aten::") for event in profile.key_averages()}
    found = sorted(n for n in names if n.startswith("_scaled_dot_product"))
    return ", ".join(found) or "not named by the profiler"
