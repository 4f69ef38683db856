"""The benchmark: what its variants are, and the command as users run it."""

import dataclasses
import json
import re
import subprocess
import sys
import time

import ca_tome.patch
import pytest
import tomesd.patch
import torch
from commands import ROOT
from stable_diffusion import unet as small_unet

import catome
from catome import hooks
from experiments.bench import __main__ as command
from experiments.bench import cost, gpu, operations, ragged, unets, variants
from experiments.bench.cells import GROUPS, MEASURE, Cell, cells
from experiments.bench.models import FINEST, twin
from experiments.bench.summary import summary
from experiments.bench.tables import HEADS, RATIOS, TITLES, to_markdown
from experiments.common import environment
from experiments.common.errors import ConfigError
from experiments.timing.work import counted_flops

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def of():
    """SD v1.5's layout in small, two rows of guidance on a 16 x 16 grid."""
    torch.manual_seed(0)
    model = small_unet().eval().requires_grad_(False)
    given = {
        "sample": torch.randn(2, 4, 16, 16),
        "timestep": 500,
        "encoder_hidden_states": torch.randn(2, 7, model.config.cross_attention_dim),
    }
    return unets.Subject("small", model, given, 1, CPU)


def test_a_twin_is_patched_alone_and_shares_the_weights(of):
    before = unets.run(of.unet, of.given)
    own = variants.by_tomesd(of.unet, 0.5, 1)
    assert not torch.equal(unets.run(own, of.given), before)
    assert torch.equal(unets.run(of.unet, of.given), before)
    pairs = zip(own.parameters(), of.unet.parameters(), strict=True)
    assert all(a.data_ptr() == b.data_ptr() for a, b in pairs)
    assert torch.equal(unets.run(twin(of.unet), of.given), before)


def test_a_re_using_evaluation_does_not_match(of):
    models = unets.ours(of, catome.Ratio(0.5))
    for name, matches in ((variants.MATCH, True), (variants.REUSE, False)):
        unets.run(models[name], of.given)
        unets.run(models[name], of.given)
        assert catome.get_handle(models[name]).matched is matches


def test_the_limit_computes_as_much_as_a_re_using_evaluation(of):
    models, share = unets.at_ratio(of, 0.5)
    assert share == pytest.approx(2 / 3)
    flops = {}
    for name, model in models.items():
        unets.run(model, of.given)
        with counted_flops() as counter:
            unets.run(model, of.given)
        flops[name] = counter.get_total_flops()
    assert flops[variants.FREE] == flops[variants.REUSE]
    assert flops[variants.REUSE] < flops[variants.MATCH] == flops[variants.TOMESD]
    assert flops[variants.MATCH] < flops[variants.UNPATCHED]


def test_about_half_of_the_sources_pass_the_middle_threshold(of):
    seconds, facts = unets.adaptive(of, turns=1)
    assert 0.4 < facts["merged share of sources"] < 0.8  # the larger count of an image's halves
    names = {name for _, *pair in RATIOS["adaptive"] for name in pair}
    assert names <= set(seconds)
    assert all(len(turns) == 1 and turns[0] > 0 for turns in seconds.values())


def slow(original):
    """The same, a fifth of a second later."""

    def slowly(*args, **kwargs):
        time.sleep(0.2)
        return original(*args, **kwargs)

    return slowly


def test_what_merging_alone_takes_is_timed_in_ours(of, monkeypatch):
    """A slow match is seen in matching evaluations alone."""
    monkeypatch.setattr(hooks, "match_images", slow(hooks.match_images))
    seconds, facts = cost.at_ratio(of, 0.5, turns=2)
    assert set(seconds) == {variants.NOTHING, variants.TOMESD, variants.MATCH, variants.REUSE}
    assert all(within < facts["evaluation"][name] for name in seconds for within in seconds[name])
    assert min(seconds[variants.MATCH]) > 0.2
    for name in (variants.NOTHING, variants.TOMESD, variants.REUSE):
        assert max(seconds[name]) < 0.2


@pytest.mark.parametrize("part", ["match", "merge", "unmerge"])
def test_what_merging_alone_takes_is_timed_in_the_peers(of, monkeypatch, part):
    def slowed(original):
        def match(*args, **kwargs):
            merge, unmerge = original(*args, **kwargs)
            return (slow(merge), unmerge) if part == "merge" else (merge, slow(unmerge))

        return slow(original) if part == "match" else match

    originals = tomesd.patch.compute_merge, ca_tome.patch.compute_merge
    for peer in (tomesd.merge, ca_tome.merge):
        matching = "bipartite_soft_matching_random2d"
        monkeypatch.setattr(peer, matching, slowed(getattr(peer, matching)))
    seconds = cost.at_ratio(of, 0.5, turns=1)[0] | cost.at_threshold(of, turns=1)[0]
    assert (tomesd.patch.compute_merge, ca_tome.patch.compute_merge) == originals
    for name in (variants.TOMESD, variants.CA_TOME_MATCH, variants.CA_TOME_REUSE):
        assert min(seconds[name]) > 0.2
    assert max(seconds[variants.MATCH]) < 0.2


def test_evaluations_that_differ_in_merging_alone():
    """All else takes 10 s, whatever an evaluation took."""
    seconds = {
        variants.NOTHING: [0.5, 0.5],
        variants.TOMESD: [2.0, 2.5],
        variants.MATCH: [1.0, 1.5],
        variants.REUSE: [0.0, 0.2],
    }
    whole = {
        variants.NOTHING: 30.0, variants.TOMESD: 11.25, variants.MATCH: 11.25, variants.REUSE: 13.0
    }  # fmt: skip
    settings = ["sd15", 512, 0.5, "float32"]
    cell = {"group": "cost", "settings": settings, "seconds": seconds}
    cell["facts"] = {"evaluation": whole}
    assert cost.evaluations(cell) == {
        variants.TOMESD: [12.0, 12.5],
        variants.MATCH: [11.0, 11.5],
        variants.REUSE: [10.0, 10.2],
        variants.FREE: [10.0, 10.0],
    }
    own = to_markdown([cell], {}).split("### ")[2]
    heads, _, row = [re.split(r" *\| *", line) for line in own.splitlines() if "|" in line]
    shown = dict(zip(heads, row, strict=True))
    assert shown["tomesd / matching"].startswith("1.089 (")
    assert shown["tomesd share"] == "20 %"


def test_ca_tome_matches_or_re_uses_as_told(of):
    for matching in (True, False):
        own = variants.by_ca_tome(of.unet, 0.5, 1, matching)
        unets.run(own, of.given)
        (block, *_) = [m for m in own.modules() if hasattr(m, "_cache_info")]
        first = block._cache_info["merge"]
        unets.run(own, of.given)
        assert (block._cache_info["merge"] is first) is not matching


def test_operations_time_both(of):
    for kind in ("match", "match in windows", "merge", "unmerge", "merge + unmerge"):
        seconds = operations.operation(kind, 64, 16, torch.float32, CPU, 2)
        assert set(seconds) == {"tomesd", "catome"}
        assert all(len(turns) == 2 for turns in seconds.values())


def test_every_group_is_measured_and_tabulated():
    listed = cells("bfloat16")
    assert {cell.group for cell in listed} == set(GROUPS) == set(MEASURE)
    assert set(HEADS) == set(TITLES) == set(RATIOS) == set(GROUPS)
    assert len({cell.name for cell in listed}) == len(listed)
    for cell in listed:
        assert len(cell.settings) == len(HEADS[cell.group])
    assert set(FINEST) == {"sd15", "sdxl"}


def test_compiled_blocks_are_compared_with_eager_ones(of, monkeypatch):
    compiled = []

    def compile_blocks(unet, **options):
        compiled.append(options)
        original(unet, backend="eager", **options)

    original = type(of.unet).compile_repeated_blocks
    monkeypatch.setattr(type(of.unet), "compile_repeated_blocks", compile_blocks)
    seconds, _ = unets.compiled(of, turns=1)
    assert compiled == [{"fullgraph": True}] * 3
    assert {name for _, *pair in RATIOS["compiled"] for name in pair} <= set(seconds)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("attention", "batch", "images"), [("fused", 1, 1), ("math", "largest", 2)]
)
def test_what_a_gpu_would_measure(of, monkeypatch, attention, batch, images):
    """All but the GPU itself: a small U-Net, and a memory that holds two images."""

    def subject(architecture, pixels, dtype, where, rows):
        if rows > 4:
            raise torch.OutOfMemoryError
        given = {
            "sample": torch.randn(rows, 4, 16, 16),
            "timestep": 500,
            "encoder_hidden_states": torch.randn(rows, 7, of.unet.config.cross_attention_dim),
        }
        return dataclasses.replace(of, given=given)

    monkeypatch.setattr(unets, "subject", subject)
    seconds, facts = gpu.evaluation("sd15", 512, torch.float32, attention, batch, CPU, turns=7)
    assert facts["images"] == images
    assert {len(turns) for turns in seconds.values()} == {7}
    assert all(gib > 0 for gib in facts["peak GiB"].values())
    facts["busy"] = dict.fromkeys(seconds, 0.5)  # kernels are timed on CUDA alone
    settings = ["sd15", 512, "float32", attention, batch]
    text = to_markdown(
        [{"group": "gpu", "settings": settings, "seconds": seconds, "facts": facts}], {}
    )
    assert (f"largest: {images} |" if batch == "largest" else "| 1 |") in re.sub(" +", " ", text)
    assert "50 %, 50 %, 50 %" in text


def test_images_of_different_lengths_are_attended_to_alike():
    calls = ragged.attentions(3, 64, 32, torch.float32, CPU)
    expected = calls[ragged.ONE_BY_ONE]()
    assert [part.shape for part in expected] == [(2, n, 32) for n in (16, 32, 48)]
    for name in (ragged.MASKED, ragged.NESTED):
        for found, own in zip(calls[name](), expected, strict=True):
            torch.testing.assert_close(found, own)
    seconds, facts = ragged.ragged(3, 64, 32, torch.float32, CPU, turns=6)
    assert set(seconds) == set(calls)
    assert all(kernel.startswith("_scaled_dot") for kernel in facts["kernel"].values())


def test_a_way_that_cannot_run_here_is_left_out(monkeypatch):
    def refuse(*_, **__):
        raise NotImplementedError("no nested tensors")

    monkeypatch.setattr(torch.nested, "nested_tensor", refuse)
    seconds, facts = ragged.ragged(2, 64, 32, torch.float32, CPU, turns=6)
    assert facts["kernel"][ragged.NESTED] == "no nested tensors"
    cell = {
        "group": "ragged",
        "settings": [2, 64, 32, "float32"],
        "seconds": seconds,
        "facts": facts,
    }
    line = to_markdown([cell], {}).splitlines()[4]
    assert "—" in [text.strip() for text in line.split("|")]  # nested / one by one


def test_nested_tensors_are_not_tried_without_the_memory(monkeypatch, tmp_path):
    """On a CPU they make all scores at once, and the process would be killed."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 24000000 kB\nMemAvailable:   23068672 kB\n")
    monkeypatch.setattr(ragged, "MEMINFO", meminfo)
    assert ragged.memory_lacking(4, 4096, torch.float32, CPU) is None
    reason = "needs 27.0 GiB of memory, 22.0 are available"
    assert ragged.memory_lacking(8, 4096, torch.float32, CPU) == reason
    meminfo.write_text("MemAvailable: 100 kB\n")
    seconds, facts = ragged.ragged(2, 64, 32, torch.float32, CPU, turns=6)
    assert set(seconds) == {ragged.ONE_BY_ONE, ragged.MASKED}
    assert facts["kernel"][ragged.NESTED].startswith("needs 0.0 GiB")


def test_the_short_table_compares_with_all_that_was_timed():
    each = {"unpatched": 4.0, "tomesd": 3.0, "catome matching": 2.0, "catome re-using": 1.0}
    seconds = {name: [value] * 6 for name, value in (each | {"free merge": 0.9}).items()}
    cells = [
        {"group": "unet", "settings": ["sd15", 512, 0.5, "float32"], "seconds": seconds},
        {"group": "memory", "settings": ["sd15", 1024, "float32"], "seconds": {}},
        {
            "group": "adaptive",
            "settings": ["sd15", 512, "float32"],
            "seconds": {"ca_tome matching": [6.0] * 6, "catome matching": [2.0] * 6},
        },
    ]
    lines = [re.sub(" +", " ", line) for line in summary(cells).splitlines()[2:]]
    unet, one = "| sd15 512 px, ratio 0.5", "1.500 (1.500–1.500)"
    assert lines[0] == f"{unet}, matching | float32 | 2.0 (2.0–2.0) | {one} | — | — |"
    assert lines[1].startswith(f"{unet}, re-using | float32 | 4.0 (4.0–4.0) | 3.0 (3.0–3.0) | — |")
    assert lines[1].endswith("| 0.900 (0.900–0.900) |")
    assert lines[2].endswith("threshold, matching | float32 | — | — | 3.0 (3.0–3.0) | — |")
    assert len(lines) == 3  # nothing was timed that the last one's re-using compares with
    late = {**cells[0], "settings": ["sd15", 1024, 0.5, "float32"]}
    kinds = [line.split(" | ")[0] for line in summary([*cells, late]).splitlines()[2:]]
    assert ["1024" in kind for kind in kinds] == [False, False, True, True, False]  # by group
    assert summary(cells[1:2]) == ""


def test_compiled_blocks_are_set_against_compiled_ones_in_the_short_table():
    seconds = {name: [1.0] * 6 for name in ("unpatched", "catome matching", "catome re-using")}
    seconds |= {
        f"{name} compiled": [own] * 6 for name, own in zip(seconds, (3.0, 2.0, 1.5), strict=True)
    }
    cell = {"group": "compiled", "settings": ["sd15", 512, "float32"], "seconds": seconds}
    matching, reusing = summary([cell]).splitlines()[2:]
    assert "both compiled, matching" in matching
    assert "1.500 (1.500–1.500)" in matching
    assert "both compiled, re-using" in reusing
    assert "2.0 (2.0–2.0)" in reusing


def test_numbers_measured_with_huge_pages_say_so(monkeypatch):
    monkeypatch.delenv(environment.HUGE_PAGES, raising=False)
    plain = environment.describe(CPU, "float32", "fused")
    monkeypatch.setenv(environment.HUGE_PAGES, "1")
    assert environment.describe(CPU, "float32", "fused") == plain | {"huge_pages": True}
    monkeypatch.setenv(environment.HUGE_PAGES, "0")
    assert environment.describe(CPU, "float32", "fused") == plain


def test_the_length_of_overlapping_spans():
    assert gpu.covered([(5, 6), (0, 2), (1, 3), (1.5, 2)]) == 4
    assert gpu.covered([]) == 0


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "experiments.bench", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_the_command_keeps_what_it_measured(tmp_path):
    arguments = ["groups=[generation]", "turns=1", f"out={tmp_path}", "device=cpu"]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert re.search(r"ca_tome / catome \|", done.stdout)
    assert (tmp_path / "bench.md").read_text() in done.stdout
    assert "on a GPU, ratio 0.5\n\nNot measured" in done.stdout
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert saved["environment"]["version_torch"] == torch.__version__.split("+")[0]
    (cell,) = saved["cells"]
    assert 0.4 < cell["facts"]["merged share of sources"] < 0.7
    assert set(cell["seconds"]) == {"unpatched", "ca_tome", "catome", "free merge"}
    again = run(*arguments)
    assert again.stdout == done.stdout
    assert "sample" not in again.stderr  # nothing was measured


def test_cells_of_other_calls_stay_in_the_table(tmp_path, monkeypatch):
    listed = [Cell("generation", ()), Cell("block", (0.5, "float32"))]
    monkeypatch.setattr(command, "cells", lambda dtype: listed)
    seconds = {"unpatched": [1.0], "ca_tome": [1.0], "catome": [1.0]}
    monkeypatch.setitem(MEASURE, "generation", lambda *_: (seconds, {}))
    monkeypatch.setitem(MEASURE, "block", lambda *_: ({"unpatched": [1.0]}, {}))
    options = [f"out={tmp_path}", "device=cpu"]
    command.bench(["groups=[block]", *options])
    text = command.bench(["groups=[generation]", *options])
    assert text.index("### One top-level transformer") < text.index("### Toy world")
    other = command.bench(["groups=[generation]", "turns=3", *options])
    assert "### One top-level transformer" not in other  # measured in another way


@pytest.mark.parametrize(
    ("has", "dtype"),
    [
        ({"avx2": True}, "float32"),
        ({"avx512_bf16": True}, "bfloat16"),
        ({"bf16": True}, "bfloat16"),
    ],
)
def test_unets_are_measured_in_bfloat16_where_the_cpu_computes_in_it(monkeypatch, has, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert command.fast_dtype(torch.device("cpu")) == dtype
    assert command.fast_dtype(torch.device("cuda")) == "bfloat16"


def test_operations_are_measured_in_both_precisions():
    for dtype, both in (("float32", {"float32", "bfloat16"}), ("float16", {"float32", "float16"})):
        found = {cell.settings[-1] for cell in cells(dtype) if cell.group == "operations"}
        assert found == both


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("groups=[speed]", "groups=speed: must be one of operations, block"),
        ("groups=block", "groups=block: must be a list"),
        ("turn=3", "turn=3: unknown key"),
        ("groups=[", "groups=[: "),
        ("turns=0", "turns=0: must be an integer >= 1 or null"),
        ("dtype=int8", "dtype=int8: must be one of auto, float32"),
        ("device=cuda:99", "device=cuda:99: "),
        ("groups=[gpu] device=cpu", "device=cpu: groups=[gpu] needs CUDA"),
        ("groups=[nothing] device=cpu", "groups=nothing: is measured with full=true only"),
        ("full=2", "full=2: must be true or false"),
        ("out=pyproject.toml", "out=pyproject.toml: must be a folder that can be written to: Not"),
    ],
)
def test_bad_options(argument, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        command.bench(argument.split())
