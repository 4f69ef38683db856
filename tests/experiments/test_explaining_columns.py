"""Columns on request: what a speed-up is made of, and what the baseline does with the time."""

import csv
import json

import pytest
import torch
from commands import QUICK, ROOT, run_command
from hydra import compose, initialize_config_dir

from experiments.accelerators.build import build_method
from experiments.models import pipelines
from experiments.painting.store import Prompt
from experiments.runner.equivalents import equal_steps
from experiments.timing import turns, work
from experiments.timing.attention import finest_attentions
from experiments.timing.free_merge import FreeMerge

WANTED = "columns=[tokens,gflops,attention,limit,seconds,steps]"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Three rows with every column."""
    results = tmp_path_factory.mktemp("asked")
    arguments = ["+experiment=compare_methods", "rows=[baseline,tome,ca_tome]", WANTED,
                 f"results={results}", *QUICK, "timing.repeats=2"]  # fmt: skip
    return run_command(*arguments), results / "toy" / "compare_methods", arguments


def table_of(folder):
    with (folder / "table.csv").open() as file:
        return {row["row"]: row for row in csv.DictReader(file)}


def test_every_column_is_printed_and_explained(asked):
    done, _, _ = asked
    assert done.returncode == 0, done.stderr
    heads = ("tokens merged", "GFLOPs saved", "attention share", "free limit", "first s/im")
    notes = ("Free limit: ", "Steps of the baseline", "Attention's share: ", "First s/im: ")
    for text in (*heads, "= PLMS steps", "= DPM++ steps", *notes):
        assert text in done.stdout, done.stdout


def test_the_figures_agree_with_each_other(asked):
    rows = table_of(asked[1])
    assert list(rows) == ["baseline", "tome", "ca_tome"]

    def figure(row, name):
        return float(rows[row][f"timing {name}"])

    assert figure("tome", "tokens_given") == 1024
    assert figure("tome", "tokens_merged") == 512
    assert 0 < figure("ca_tome", "tokens_merged") < 768
    for row in ("tome", "ca_tome"):
        speed, limit, reached = (figure(row, n) for n in ("speedup", "limit", "of_limit"))
        assert limit > 0
        # Medians of two turns: the product holds turn by turn, not quite for the medians.
        assert speed == pytest.approx(limit * reached, rel=0.3)
    assert 0.1 < figure("baseline", "attention_share") < 0.7
    assert figure("tome", "attention_share") < figure("baseline", "attention_share")
    assert not rows["baseline"]["timing limit"]


def test_rows_are_compared_with_the_baseline_at_their_time(asked):
    _, folder, _ = asked
    experiment = json.loads((folder / "experiment.json").read_text())
    assert experiment["rows"] == ["baseline", "tome", "ca_tome"]
    rows, painted = table_of(folder), json.loads((folder / "painted.json").read_text())
    for name in ("tome", "ca_tome"):
        for scheduler, found in experiment["equivalents"][name].items():
            assert 1 <= found["steps"] <= 4
            assert len(painted[found["row"]]) == 2
            assert int(rows[name][f"equal {scheduler} steps"]) == found["steps"]
            low, value, high = (
                float(rows[name][f"clip_toy minus equal {scheduler}{end}"])
                for end in (" low", "", " high")
            )
            assert low <= value <= high
    assert set(experiment["equivalents"]) == {"tome", "ca_tome"}


def test_the_report_alone_keeps_them(asked):
    done, _, arguments = asked
    again = run_command(*arguments, "stages=[report]")
    assert again.returncode == 0, again.stderr
    assert again.stdout.split("##")[1] == done.stdout.split("##")[1]


def test_an_unknown_column_is_refused():
    done = run_command("columns=[tokens,speed]")
    assert done.returncode == 1
    assert "columns=speed: must be one of tokens, gflops, attention, limit, seconds, steps" in (
        done.stderr
    )


@pytest.fixture(scope="module")
def row():
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", ["method=tome", "method.ratio=0.4", "generation.steps=2"])
    return turns.TimedRow("tome", cfg, build_method(cfg))


def test_the_free_limit_does_the_same_work_less_the_merging(row):
    """Its FLOPs are the row's own: matching is a product that the counter sees."""
    pipe, prompts = pipelines.load(row.cfg), [Prompt("a red ring", 0)]
    counted = work.count_work(pipe, row, prompts)
    free = turns.TimedRow("free", row.cfg, FreeMerge(counted["kept"]))
    without_match = work.count_work(pipe, free, prompts)["gflops_per_image"]
    evaluations, blocks, sources, destinations, channels = 3, len(counted["kept"]), 768, 256, 32
    matching = 2 * evaluations * blocks * 2 * sources * destinations * channels / 1e9
    assert counted["gflops_per_image"] == pytest.approx(without_match + matching, rel=1e-3)
    assert without_match < work.count_work(pipe, plain(row), prompts)["gflops_per_image"]


def plain(row):
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", ["method=none", "generation.steps=2"])
    return turns.TimedRow("baseline", cfg, build_method(cfg))


def test_a_pipeline_is_as_before_after_the_free_limit(row):
    pipe = pipelines.load(row.cfg)
    x, t = torch.randn(1, pipe.unet.config.in_channels, 32, 32), torch.tensor(500)
    context = torch.randn(1, 32, pipe.unet.config.cross_attention_dim)
    with torch.no_grad():
        before = pipe.unet(x, t, context).sample
        name = next(iter(finest_attentions(pipe.unet)))
        with FreeMerge({name: [16]}).attach(pipe):
            assert not torch.equal(pipe.unet(x, t, context).sample, before)
        assert torch.equal(pipe.unet(x, t, context).sample, before)


def test_the_finest_attentions_are_those_with_the_most_tokens(row):
    pipe = pipelines.load(row.cfg)
    names = finest_attentions(pipe.unet)
    assert names
    assert all(n.startswith(("down_blocks.0.", "up_blocks.")) and n.endswith(".attn1")
               for n in names)  # fmt: skip
    with torch.no_grad():
        seen = []
        hooks = [m.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
                 for m in names.values()]  # fmt: skip
        context = torch.randn(1, 32, pipe.unet.config.cross_attention_dim)
        pipe.unet(torch.randn(1, pipe.unet.config.in_channels, 32, 32), torch.tensor(5), context)
        for hook in hooks:
            hook.remove()
    assert set(seen) == {1024}


@pytest.mark.parametrize(
    ("scheduler", "seconds", "steps"),
    [
        ("plms", 5.6, 50),  # 51 evaluations of 0.1 and 0.5 of decoding
        ("plms", 4.6, 40),
        ("dpm++2m", 4.6, 41),  # one evaluation a step
        ("plms", 99.0, 50),
        ("plms", 0.0, 1),
    ],
)
def test_steps_of_the_baseline_at_a_time(scheduler, seconds, steps):
    figures = {
        "s_per_image": 5.6,
        "s_per_evaluation": 0.2,
        "batch_size": 2,
        "evaluations": 51,
    }
    assert equal_steps(figures, seconds, scheduler, 50) == steps
