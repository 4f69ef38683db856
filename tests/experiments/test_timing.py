"""What the time stage counts, held against hand arithmetic."""

import json
import re
from statistics import median

import pytest
import torch
import torch.nn.functional as F
from commands import QUICK, ROOT, run_command
from diffusers.models.attention import BasicTransformerBlock
from hydra import compose, initialize_config_dir

from experiments.accelerators.build import build_method
from experiments.models import pipelines
from experiments.painting import pipeline_call
from experiments.painting.store import Prompt
from experiments.timing import batches, memory, turns, work


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
    with torch.no_grad(), pipeline_call.attention_backend(backend), work.counted_flops() as counter:
        block(x, encoder_hidden_states=context)
    assert counter.get_total_flops() == 2 * block_flops(64, 32, 10, 24)


def kernels(backend: str) -> set[str]:
    q = torch.randn(1, 2, 64, 8)
    with (
        torch.no_grad(),
        pipeline_call.attention_backend(backend),
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
    memory.reset_peak_memory(cuda=False)
    before = memory.peak_memory_gb(cuda=False)
    if before is None:
        pytest.skip("needs /proc (Linux)")
    block = torch.ones(2**26)  # 256 MiB
    high = memory.peak_memory_gb(cuda=False)
    assert high - before > 0.2
    del block
    memory.reset_peak_memory(cuda=False)
    assert memory.peak_memory_gb(cuda=False) < high - 0.2


def test_rows_are_compared_with_the_row_they_name(tmp_path):
    """Two image sizes and two batch sizes: each speed-up is relative to its own baseline, by
    seconds an image."""
    done = run_command(
        "+experiment=batch_scaling", f"results={tmp_path}", *QUICK, "sweep.batches=[1,2]",
        "timing.repeats=2", "rows=[baseline_1,ca_tome_1,baseline_2,ca_tome_2]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "toy" / "batch_scaling"
    timing_of = json.loads((folder / "timing.json").read_text())
    assert timing_of["batch_size"] is None
    for batch in (1, 2):
        base, own = (timing_of["rows"][f"{name}_{batch}"] for name in ("baseline", "ca_tome"))
        assert base["speedup"] == 1
        assert own["batch_size"] == batch
        totals = zip(base["s_per_image_all"], own["s_per_image_all"], strict=True)
        assert own["speedup"] == pytest.approx(median(b / o for b, o in totals))
    assert re.search(r"\| +batch \|", done.stdout)
    assert "own baselines: ca_tome_1 to baseline_1, ca_tome_2 to baseline_2." in done.stdout
    assert "not painted yet" not in done.stderr
    assert (folder / "plots" / "along_batch.pdf").is_file()
    assert not (tmp_path / "images").exists()


def test_the_largest_batch_is_found_by_doubling(monkeypatch):
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", ["method=none"])
    cfg.timing.batch_size = "largest"
    tried = []

    def generate(pipe, cfg, prompts):
        tried.append((len(prompts), cfg.generation.steps))
        if len(prompts) > 11:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pipeline_call, "generate", generate)
    monkeypatch.setattr(pipelines, "load", lambda cfg: None)
    row = turns.TimedRow("baseline", cfg, build_method(cfg))
    assert batches.batch_of(row, [Prompt("a", 0), Prompt("b", 1)]) == 8
    assert tried == [(2, 2), (4, 2), (8, 2), (16, 2)]
