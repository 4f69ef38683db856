"""pytorch-fid's own network and resize, held to pytorch-fid itself."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from pytorch_fid import fid_score
from pytorch_fid import inception as their_inception

from experiments import prepare
from experiments.common.errors import ConfigError
from experiments.common.files import file_sha256
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.frechet import frechet_distance, gaussian
from experiments.metrics.inception_pytorch_fid import load_pytorch_fid, pytorch_fid_column
from experiments.metrics.statistics import read_statistics, write_statistics

FILE = their_inception.FID_WEIGHTS_URL.rsplit("/", 1)[1]


@pytest.fixture(scope="module")
def torch_home(inception_weights, tmp_path_factory):
    """A TORCH_HOME in which pytorch-fid finds the random weights that it would download."""
    home = tmp_path_factory.mktemp("torch")
    (home / "hub" / "checkpoints").mkdir(parents=True)
    shutil.copy(inception_weights, home / "hub" / "checkpoints" / FILE)
    return home


@pytest.fixture(scope="module")
def sets(textured, write_row, photographs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pytorch-fid")
    reference = photographs(folder / "photographs", textured(6, 91))
    return reference, write_row(folder, "row", textured(5, 92, contrast=25))


def evaluate(sets, cache, **settings):
    reference, row = sets
    metrics = {"names": ["fid_pytorch_fid"], "reference": str(reference), **settings}
    return evaluate_rows([row], None, metrics, cache, "cpu")


@pytest.fixture(scope="module")
def measured(sets, inception_weights, tmp_path_factory):
    return evaluate(
        sets,
        tmp_path_factory.mktemp("cache"),
        names=["fid", "fid_pytorch_fid"],
        inception_weights=str(inception_weights),
        pytorch_fid_weights=str(inception_weights),
    )


def columns(weights):
    sha256 = file_sha256(weights)[:8]
    return f"FD (Inception {sha256})", f"FD (pytorch-fid Inception {sha256})"


def test_the_features_are_those_of_pytorch_fid(
    sets, measured, torch_home, inception_weights, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(torch_home))
    reference, row = sets
    model = their_inception.InceptionV3([3])
    rows, photographs = (
        fid_score.get_activations(files, model, batch_size=len(files), num_workers=0)
        for files in (list(row.images), sorted(reference.iterdir()))
    )
    expected = frechet_distance(gaussian(rows), gaussian(photographs))
    theirs, ours = (measured.figures["row"][column] for column in columns(inception_weights))
    assert ours == pytest.approx(expected, rel=1e-3)
    assert expected > 5
    # The same weights with torch-fidelity's resize give another number.
    assert abs(theirs / expected - 1) > 1e-3


@pytest.mark.long
def test_equals_pytorch_fids_command_line(sets, measured, torch_home, inception_weights, tmp_path):
    reference, row = sets
    done = subprocess.run(
        [sys.executable, "-m", "pytorch_fid", str(row.images[0].parent), str(reference),
         "--device", "cpu", "--num-workers", "0", "--batch-size", "5"],
        capture_output=True, text=True, check=True, timeout=1800,
        env={"TORCH_HOME": str(torch_home), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    theirs = float(re.search(r"FID:\s+(\S+)", done.stdout).group(1))
    _, column = columns(inception_weights)
    assert measured.figures["row"][column] == pytest.approx(theirs, rel=1e-3)


def test_null_takes_the_file_where_pytorch_fid_keeps_it(
    sets, measured, torch_home, inception_weights, tmp_path, monkeypatch
):
    monkeypatch.setenv("TORCH_HOME", str(torch_home))
    _, sha256 = load_pytorch_fid(None, "cpu")
    assert sha256 == file_sha256(inception_weights)


def test_only_the_standard_weights_give_a_column_called_fid(measured, inception_weights):
    assert pytorch_fid_column("6726825d" + "0" * 56) == "FID (pytorch-fid)"
    assert list(measured.figures["row"]) == list(columns(inception_weights))
    assert not [column for column in measured.figures["row"] if "FID" in column]


def test_statistics_are_exchanged_with_pytorch_fid(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 8))
    mean, covariance = rows.mean(axis=0), np.cov(rows, rowvar=False)
    path = tmp_path / "ours.npz"
    write_statistics(path, mean, covariance)
    theirs = fid_score.compute_statistics_of_path(str(path), None, 1, 8, "cpu")
    assert (theirs[0] == mean).all()
    assert np.allclose(theirs[1], covariance, rtol=1e-15)
    np.savez_compressed(tmp_path / "theirs.npz", mu=mean, sigma=covariance)  # as --save-stats
    assert (read_statistics(tmp_path / "theirs.npz").mean == mean).all()


def test_files_that_are_no_such_weights_are_refused_in_one_line(tmp_path, capsys, reckless):
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("no weights")
    torch.save(reckless, tmp_path / "reckless.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    for name in ("other.pth", "text.pth", "reckless.pth", "list.pth"):
        with pytest.raises(
            ConfigError, match=rf"metrics.pytorch_fid_weights=\S*{name}: "
        ) as caught:
            load_pytorch_fid(tmp_path / name, "cpu")
        assert "\n" not in str(caught.value)
    assert "unpickled" not in capsys.readouterr().out


def test_a_failed_download_names_the_key(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", offline)
    with pytest.raises(ConfigError, match=r"pytorch_fid_weights=null: the download .*no network"):
        load_pytorch_fid(None, "cpu")


@pytest.mark.parametrize("tool", ["pytorch-fid", "torch-fidelity"])
def test_prepared_statistics_stand_for_their_folder(
    tool, sets, measured, inception_weights, tmp_path, capsys
):
    folder, _ = sets
    out = tmp_path / "statistics.npz"
    code = prepare.main(
        ["statistics", f"images={folder}", f"out={out}", f"weights={inception_weights}",
         f"tool={tool}", f"results={tmp_path}"]
    )  # fmt: skip
    assert code == 0, capsys.readouterr().err
    assert "6 images of photographs" in capsys.readouterr().out
    name = "fid_pytorch_fid" if tool == "pytorch-fid" else "fid"
    weights = {k: str(inception_weights) for k in ("inception_weights", "pytorch_fid_weights")}
    scores = evaluate((out, sets[1]), tmp_path, names=[name], **weights)
    column = columns(inception_weights)[name == "fid_pytorch_fid"]
    own = measured.figures["row"][column]
    assert scores.figures["row"][column] == pytest.approx(own, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("images=nowhere", "images=nowhere: must be a folder with at least 2 images"),
        ("tool=clean-fid", "tool=clean-fid: must be one of pytorch-fid, torch-fidelity"),
        ("device=gpu", "device=gpu: must be auto, cpu, cuda or cuda:<n>"),
        ("weights=none.pth", "weights=none.pth: no such file"),
        ("image=x", "image=x: unknown key"),
    ],
)
def test_statistics_that_cannot_be(given, told, sets, tmp_path, capsys):
    base = {"images": sets[0], "out": tmp_path / "s.npz", "results": tmp_path}
    arguments = [f"{k}={v}" for k, v in base.items() if not given.startswith(f"{k}=")]
    assert prepare.main(["statistics", *arguments, given]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "s.npz").exists()
