"""Schedules found from a trace: the search against brute force, the costs, the command."""

import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from commands import QUICK, run_command
from diffusers.models.attention import BasicTransformerBlock

import catome
from experiments.accelerators.schedule_file import read_schedule, write_schedule
from experiments.accelerators.token_merging import TokenMergingMethod, parse_refresh
from experiments.analysis.reuse_cost import Tap, block_costs
from experiments.analysis.search import best_checkpoints, cost_of, random_checkpoints
from experiments.models.evaluations import evaluations_of


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 4, 9])
def test_the_search_equals_brute_force(seed, count):
    costs = np.random.default_rng(seed).random((9, 9))
    steps, total = best_checkpoints(costs, count)
    lists = [[0, *rest] for rest in combinations(range(1, 9), count - 1)]
    assert len(steps) == count
    assert total == pytest.approx(cost_of(costs, steps))
    assert total == pytest.approx(min(cost_of(costs, one) for one in lists))


def test_the_cost_of_a_list_by_hand():
    costs = np.arange(16.0).reshape(4, 4)
    assert cost_of(costs, [0, 2]) == 0 + 1 + 10 + 11
    assert cost_of(costs, [2, 99]) == 0 + 1 + 10 + 11  # 0 always matches, 99 is never reached


def test_random_lists():
    drawn = random_checkpoints(51, 11, 3)
    assert len(set(drawn)) == 11
    assert drawn[0] == 0
    assert drawn == sorted(drawn) == random_checkpoints(51, 11, 3)
    assert drawn != random_checkpoints(51, 11, 4)


def test_costs_are_the_attentions_own_error():
    torch.manual_seed(0)
    block = BasicTransformerBlock(16, 2, 8, cross_attention_dim=8).eval().requires_grad_(False)
    tap, text = Tap(block), torch.randn(2, 3, 8)
    # Two evaluations that see the same tokens, and one that sees others.
    first, last = torch.randn(2, 64, 16), torch.randn(2, 64, 16)
    for tokens in (first, first, last):
        block(tokens, encoder_hidden_states=text)
    merging = catome.TokenMerging(catome.Ratio(0.5), destinations="corner")
    costs = block_costs(tap, merging, "block", (8, 8))
    assert len(tap.attention_inputs) == 3  # measuring is no generation
    assert np.isnan(costs[np.tril_indices(3, -1)]).all()
    assert costs[0, 1] == pytest.approx(costs[0, 0])
    assert costs[0, 2] > 0
    assert costs[2, 2] > 0
    match, _ = catome.match(first, catome.destination_tokens(8, 8, 2), catome.Ratio(0.5))
    tokens = block.norm1(last)
    whole, merged = block.attn1(tokens), match.unmerge(block.attn1(match.merge(tokens)))
    assert costs[0, 2] == pytest.approx(((merged - whole).norm() / whole.norm()).item(), rel=1e-4)
    del tap.attention_inputs[3:]  # the test's own
    nothing = catome.TokenMerging(catome.Ratio(0.0), destinations="corner")
    assert np.nanmax(block_costs(tap, nothing, "block", (8, 8))) < 1e-6


def test_files_go_round(tmp_path):
    write_schedule(tmp_path / "a.json", "found 2", 51, [0, 7], cost=1.0)
    assert read_schedule(str(tmp_path / "a.json")) == (catome.Checkpoints([0, 7], 51), "found 2")
    write_schedule(tmp_path / "b.json", "by block", 51, {"x": [0, 7]})
    schedule, caching = parse_refresh(str(tmp_path / "b.json"))
    assert (schedule, caching) == (
        catome.ByBlock({"x": catome.Checkpoints([0, 7], 51)}),
        "by block",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("[]", "must be a file with name, evaluations"),
        ('{"name": "a", "evaluations": 51}', "must be a file with name, evaluations"),
        ('{"name": "a", "evaluations": 51, "steps": [3, 0]}', r"checkpoints=\[3, 0\]"),
        ('{"name": "a", "evaluations": 0, "steps": [0]}', "evaluations=0"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "schedule.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_schedule(str(path))


def test_a_found_list_warns_at_another_number_of_evaluations(tmp_path):
    path = tmp_path / "a.json"
    write_schedule(path, "found 3", 51, [0, 10, 50])

    def method(**options):
        made = TokenMergingMethod("m", "M", threshold=0.9, refresh=str(path), **options)
        made.prepare(21)
        return made

    plain = method()
    assert plain.caching == "found 3"
    assert any("made for 51 evaluations and used at 21" in w for w in plain.warnings(21))
    assert not plain.warnings(51)
    stretched = method(rescale=True)
    assert stretched.caching == "found 3, rescaled to 21"
    assert stretched.merging.refresh.steps == (0, 4, 20)
    assert not stretched.warnings(21)
    assert stretched.settings() != plain.settings()


@pytest.mark.parametrize("scheduler", ["plms", "ddim", "dpm++2m", "euler"])
@pytest.mark.parametrize("steps", [1, 2, 20, 50])
def test_evaluations_are_the_schedulers_own(scheduler, steps):
    from experiments.models.schedulers import SCHEDULER_CLASSES

    kind, options = SCHEDULER_CLASSES[scheduler]
    made = kind(**options)
    made.set_timesteps(steps)
    assert evaluations_of(scheduler, steps) == len(made.timesteps)


def test_bad_settings_are_refused_before_anything_is_found(tmp_path):
    arguments = ["+experiment=find_schedule", f"results={tmp_path}", *QUICK, "generation.steps=0"]
    done = run_command(*arguments)
    assert done.returncode == 1
    assert "generation.steps=0: must be an integer >= 1" in done.stderr
    assert "Traceback" not in done.stderr
    done = run_command(*arguments[:-1], "generation.steps=4", "sweep.random=3")
    assert done.returncode == 1
    assert "sweep.random=3: must be a list" in done.stderr


def test_the_command_finds_paints_and_reports(tmp_path):
    rows = "rows=[baseline,found,found_by_block,random_4]"
    arguments = ["+experiment=find_schedule", f"results={tmp_path}", *QUICK, "prompts.scenes=16"]
    arguments += ["sweep.matches=2", "sweep.tune=1", "sweep.random=[4]", rows]
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr
    for text in ("found 2", "found 2 by block", "random 4"):
        assert text in done.stdout
    folder = tmp_path / "toy" / "find_schedule"
    costs = pd.read_csv(folder / "schedules" / "costs.csv")
    assert len(costs) == 15 * costs["block"].nunique()
    found = json.loads((folder / "schedules" / "found.json").read_text())
    assert found["evaluations"] == 5
    assert found["steps"][0] == 0
    assert len(found["steps"]) == 2
    listed = json.loads((folder / "schedules" / "found_from.json").read_text())
    assert listed["rule"]["split"] == "tune"
    assert listed["costs"]["found 2 by block"] <= listed["costs"]["found 2"] + 1e-9
    assert listed["costs"]["found 2"] <= listed["costs"]["random 4"] + 1e-9
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["rule"]["split"] == "report"
    # Nothing is found again by a second call.
    before = (folder / "schedules" / "costs.csv").stat().st_mtime_ns
    again = run_command(*arguments, "stages=[report]")
    assert again.returncode == 0, again.stderr
    assert (folder / "schedules" / "costs.csv").stat().st_mtime_ns == before
