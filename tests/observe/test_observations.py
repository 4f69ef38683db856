"""The paper's two observations: what is computed, and the commands."""

import numpy as np
import pandas as pd
import pytest
import torch
from commands import QUICK, run_command

from experiments.analysis.pair_overlap import by_distance, jaccard
from experiments.analysis.panels import short_names


def test_jaccard_of_sets_of_pairs_by_hand():
    # Five tokens; token 4 is never merged. Pairs: {0>3, 1>3}, {0>3, 1>2}, {}.
    steps = torch.tensor([[3, 3, 2, 3, 4], [3, 2, 2, 3, 4], [0, 1, 2, 3, 4]])[:, None]
    found = jaccard(steps)
    assert found.shape == (3, 3, 1)
    expected = [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 0]]
    assert torch.allclose(found[:, :, 0], torch.tensor(expected))


def test_jaccard_against_sets():
    generator = torch.Generator().manual_seed(0)
    assignments = torch.arange(30).repeat(4, 2, 1)
    chosen = torch.rand(4, 2, 30, generator=generator) < 0.5
    assignments[chosen] = torch.randint(0, 3, (int(chosen.sum()),), generator=generator)
    found = jaccard(assignments)

    def pairs(s, b):
        return {(i, int(t)) for i, t in enumerate(assignments[s, b]) if i != t}

    for s in range(4):
        for t in range(4):
            for b in range(2):
                one, other = pairs(s, b), pairs(t, b)
                assert found[s, t, b] == pytest.approx(len(one & other) / len(one | other))


def test_means_by_distance():
    matrix = np.arange(9.0).reshape(3, 3)
    assert by_distance(matrix).tolist() == [(1 + 5) / 2, 2]


def test_names_of_blocks():
    names = ["down_blocks.0.attentions.1.transformer_blocks.0",
             "up_blocks.3.attentions.0.transformer_blocks.0"]  # fmt: skip
    assert short_names(names) == ["down 0.1", "up 3.0"]
    several = ["down_blocks.1.attentions.0.transformer_blocks.0",
               "down_blocks.1.attentions.0.transformer_blocks.1"]  # fmt: skip
    assert short_names(several) == ["down 1.0.0", "down 1.0.1"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def test_similarity(results):
    done = run_command("+experiment=similarity", f"results={results}", *QUICK)
    assert done.returncode == 0, done.stderr
    folder = results / "toy" / "similarity"
    table = pd.read_csv(folder / "similarity.csv")
    assert sorted(table["step"].unique()) == list(range(5))  # PLMS: one more than steps
    blocks = table["block"].nunique()
    assert len(table) == 5 * blocks
    shares = table[[c for c in table if c.startswith("share_")]].to_numpy()
    assert (np.diff(shares, axis=1) <= 0).all()  # a higher threshold never merges more
    assert (table["q05"] <= table["q50"]).all()
    assert (table["q95"] <= 1 + 1e-5).all()
    assert 0.2 < shares.mean() < 1
    assert done.stdout.count("\n| ") >= blocks
    names = {path.name for path in (folder / "plots").iterdir()}
    assert names == {f"{n}.{k}" for n in ("similarity", "share_merged") for k in ("png", "pdf")}


def test_pair_overlap(results):
    done = run_command("+experiment=pair_overlap", f"results={results}", *QUICK)
    assert done.returncode == 0, done.stderr
    folder = results / "toy" / "pair_overlap"
    table = pd.read_csv(folder / "pair_overlap.csv")
    assert len(table) == 10 * table["block"].nunique()
    assert table["jaccard"].between(0, 1).all()
    adjacent = table[table["other"] - table["step"] == 1]["jaccard"].mean()
    distant = table[table["other"] - table["step"] == 4]["jaccard"].mean()
    assert adjacent > distant
    assert (folder / "table.md").read_text().startswith("## Overlap of the pairs")
    assert (folder / "plots" / "pair_overlap_by_distance.pdf").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["method=none"], "method=none: must merge tokens"),
        (["method=tome", "method.ratio=0"], "method=tome: merges nothing as set"),
        (["experiment.observation=x"], "experiment.observation=x: must be one of similarity"),
    ],
)
def test_nothing_to_observe(results, arguments, message):
    done = run_command("+experiment=pair_overlap", f"results={results}", *QUICK, *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
