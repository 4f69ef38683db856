"""What the time stage counts, held against hand arithmetic."""

import pytest
import torch
import torch.nn.functional as F
from diffusers.models.attention import BasicTransformerBlock

from experiments import pipelines, timing


def block_flops(tokens: int, width: int, context: int, context_width: int) -> int:
    """2 a multiply-add: projections, the two attentions' products, the GEGLU feed-forward."""
    self_projections = 4 * 2 * tokens * width * width
    self_products = 2 * 2 * tokens * tokens * width
    cross_projections = 2 * 2 * tokens * width * width + 2 * 2 * context * context_width * width
    cross_products = 2 * 2 * tokens * context * width
    feed_forward = 2 * tokens * width * (8 * width) + 2 * tokens * (4 * width) * width
    return self_projections + self_products + cross_projections + cross_products + feed_forward


@pytest.mark.parametrize("backend", ["fused", "math"])
def test_flops_of_a_block_equal_hand_arithmetic(backend):
    torch.manual_seed(0)
    block = BasicTransformerBlock(32, 4, 8, cross_attention_dim=24, activation_fn="geglu").eval()
    x, context = torch.randn(2, 64, 32), torch.randn(2, 10, 24)
    with torch.no_grad(), pipelines.attention_backend(backend), timing.counted_flops() as counter:
        block(x, encoder_hidden_states=context)
    assert counter.get_total_flops() == 2 * block_flops(64, 32, 10, 24)


def kernels(backend: str) -> set[str]:
    q = torch.randn(1, 2, 64, 8)
    with (
        torch.no_grad(),
        pipelines.attention_backend(backend),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
    ):
        F.scaled_dot_product_attention(q, q, q)
    return {event.key for event in profile.key_averages()}


def test_the_choice_of_attention_backend_takes_effect():
    assert any("flash" in name for name in kernels("fused"))
    plain = kernels("math")
    assert "aten::_scaled_dot_product_attention_math" in plain
    assert not any("flash" in name for name in plain)


def test_peak_memory_is_of_the_present_generation():
    timing.reset_peak_memory(cuda=False)
    before = timing.peak_memory_gb(cuda=False)
    if before is None:
        pytest.skip("needs /proc (Linux)")
    block = torch.ones(2**26)  # 256 MiB
    high = timing.peak_memory_gb(cuda=False)
    assert high - before > 0.2
    del block
    timing.reset_peak_memory(cuda=False)
    assert timing.peak_memory_gb(cuda=False) < high - 0.2
