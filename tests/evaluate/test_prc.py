"""Precision and recall in VGG-16's features, as they are published."""

import numpy as np
import pytest
import torch
import torchvision
from torch_fidelity import calculate_metrics

from experiments.common.errors import ConfigError
from experiments.common.files import file_sha256
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.vgg16 import vgg16_name


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Random VGG-16 of the true architecture; its file, half a GB, goes with the module."""
    path = tmp_path_factory.mktemp("vgg16") / "random.pth"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.save(torchvision.models.vgg16().state_dict(), path)
    yield path
    path.unlink()


def test_equal_torch_fidelity_by_its_own_default(
    weights, textured, photographs, write_row, tmp_path
):
    mixed = np.concatenate([textured(5, 1), textured(5, 2, contrast=20)])
    row = write_row(tmp_path, "row", mixed)
    reference = photographs(tmp_path / "reference", textured(9, 3))
    metrics = {"names": ["prc"], "reference": str(reference), "vgg16_weights": str(weights)}
    ours = evaluate_rows([row], None, metrics, tmp_path, "cpu")
    theirs = calculate_metrics(
        input1=str(row.images[0].parent), input2=str(reference), prc=True, cuda=False,
        cache=False, verbose=False, feature_extractor_weights_path=str(weights),
    )  # fmt: skip
    network = f"VGG-16 {file_sha256(weights)[:8]}"
    found = ours.figures["row"]
    assert found[f"Precision ({network})"] == theirs["precision"]
    assert found[f"Recall ({network})"] == theirs["recall"]
    assert 0 < theirs["precision"] < 1  # the half with less contrast lies elsewhere
    assert "VGG-16, layer fc2_relu" in ours.protocol["prc"]["features"]


def test_the_standard_weights_need_no_hash_in_the_name():
    assert vgg16_name("397923af" + "0" * 56) == "VGG-16"


def test_weights_that_do_not_fit(reckless, textured, photographs, write_row, tmp_path, capsys):
    row = write_row(tmp_path, "row", textured(4, 1))
    reference = photographs(tmp_path / "reference", textured(4, 3))
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pth")
    torch.save({"a": reckless}, tmp_path / "reckless.pth")
    (tmp_path / "text.pth").write_text("no weights")
    for name in ("other.pth", "reckless.pth", "text.pth"):
        metrics = {
            "names": ["prc"],
            "reference": str(reference),
            "vgg16_weights": str(tmp_path / name),
        }
        with pytest.raises(ConfigError, match=rf"metrics.vgg16_weights=\S*{name}: ") as caught:
            evaluate_rows([row], None, metrics, tmp_path, "cpu")
        assert "\n" not in str(caught.value)
    assert "unpickled" not in capsys.readouterr().out


def test_an_unknown_network_is_refused(write_row, textured, tmp_path):
    row = write_row(tmp_path, "row", textured(2, 1))
    with pytest.raises(ConfigError, match=r"metrics\.prc_network=vgg: must be one of vgg16, incep"):
        evaluate_rows([row], None, {"names": ["prc"], "prc_network": "vgg"}, tmp_path, "cpu")
