import shutil

import numpy as np
import pytest
import torch
import torchvision
from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity

from experiments.common.errors import ConfigError
from experiments.common.files import file_sha256
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.images import read_image, to_tensor
from experiments.metrics.lpips import WEIGHTS, load_lpips, lpips_column

BUILD = {
    "alex": torchvision.models.alexnet,
    "vgg": torchvision.models.vgg16,
    "squeeze": torchvision.models.squeezenet1_1,
}


def save_backbone(net, path):
    torch.manual_seed(0)
    torch.save(BUILD[net]().state_dict(), path)
    return path


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return save_backbone("squeeze", tmp_path_factory.mktemp("lpips") / "squeeze.pth")


@pytest.fixture(scope="module")
def rows(textured, write_row, tmp_path_factory):
    """A baseline of six pictures and a row in which the last is identical."""
    folder = tmp_path_factory.mktemp("rows")
    pictures, changed = textured(6, 95), textured(6, 95, contrast=40)
    changed[5] = pictures[5]
    return write_row(folder, "baseline", pictures), write_row(folder, "row", changed)


def by_torchmetrics(net, path, home, monkeypatch, rows):
    """(5,) values of its public class, which loads torchvision's weights from the hub folder."""
    (home / "hub" / "checkpoints").mkdir(parents=True)
    shutil.copy(path, home / "hub" / "checkpoints" / WEIGHTS[net].url.rsplit("/", 1)[1])
    monkeypatch.setenv("TORCH_HOME", str(home))
    metric = LearnedPerceptualImagePatchSimilarity(net_type=net, normalize=True)
    pairs = [
        [to_tensor(read_image(path))[None].float() / 255 for path in paths]
        for paths in zip(rows[1].images[:5], rows[0].images[:5], strict=True)
    ]
    return np.array([float(metric(*pair)) for pair in pairs])


def test_equals_torchmetrics_with_mean_tail_and_identical_images_apart(
    rows, backbone, tmp_path, monkeypatch
):
    baseline, row = rows
    metrics = {"names": ["lpips"], "lpips_net": "squeeze", "lpips_backbone": str(backbone)}
    scores = evaluate_rows([baseline, row], baseline, metrics, tmp_path, "cpu")
    expected = by_torchmetrics("squeeze", backbone, tmp_path / "torch", monkeypatch, rows)
    column = f"LPIPS (squeeze, backbone {file_sha256(backbone)[:8]})"
    found = scores.per_image[scores.per_image["row"] == "row"]["lpips"]
    assert found[:-1].astype(float).tolist() == pytest.approx(expected.tolist(), rel=1e-4)
    assert found.isna().tolist() == [False] * 5 + [True]
    assert len(set(found[:-1])) == 5
    assert scores.figures["row"][column] == pytest.approx(expected.mean(), rel=1e-4)
    tail = np.percentile(expected, 95)
    assert scores.beside["row"][column] == {"95th percentile": pytest.approx(tail, rel=1e-4)}
    assert scores.figures["row"]["identical images"] == 1
    assert scores.figures["baseline"] == {column: None, "identical images": 6}
    assert scores.protocol["columns"][column]["better"] == "lower"
    assert scores.protocol["lpips"]["weights_sha256"] == file_sha256(backbone)
    # Without a file the weights come from where torchvision keeps them.
    _, sha256 = load_lpips("squeeze", None, "cpu")
    assert sha256 == file_sha256(backbone)


@pytest.mark.long
@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_the_other_backbones_equal_torchmetrics(rows, net, tmp_path, monkeypatch):
    path = save_backbone(net, tmp_path / "backbone.pth")
    metrics = {"names": ["lpips"], "lpips_net": net, "lpips_backbone": str(path)}
    scores = evaluate_rows([rows[1]], rows[0], metrics, tmp_path, "cpu")
    expected = by_torchmetrics(net, path, tmp_path / "torch", monkeypatch, rows)
    assert scores.per_image["lpips"][:5].astype(float).tolist() == pytest.approx(
        expected.tolist(), rel=1e-4
    )


def test_only_torchvisions_weights_go_without_saying():
    assert lpips_column("alex", "7be5be79" + "0" * 56) == "LPIPS (alex)"
    assert lpips_column("vgg", "397923af" + "0" * 56) == "LPIPS (vgg)"
    assert lpips_column("squeeze", "b8a52dc0" + "0" * 56) == "LPIPS (squeeze)"
    assert lpips_column("vgg", "7be5be79" + "0" * 56) == "LPIPS (vgg, backbone 7be5be79)"


def test_files_that_are_no_such_weights_are_refused_in_one_line(
    backbone, tmp_path, capsys, reckless
):
    other = torch.load(backbone, weights_only=True)
    other.pop("features.3.squeeze.weight")
    torch.save(other, tmp_path / "incomplete.pth")
    shapes = {key: value[..., :1] for key, value in torch.load(backbone).items()}
    torch.save(shapes, tmp_path / "shapes.pth")
    (tmp_path / "text.pth").write_text("no weights")
    torch.save(reckless, tmp_path / "reckless.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    for name in ("incomplete.pth", "shapes.pth", "text.pth", "reckless.pth", "list.pth"):
        with pytest.raises(ConfigError, match=rf"metrics.lpips_backbone=\S*{name}: ") as caught:
            load_lpips("squeeze", tmp_path / name, "cpu")
        assert "\n" not in str(caught.value)
    assert "unpickled" not in capsys.readouterr().out


def test_without_a_baseline_it_is_left_out_and_this_is_said(rows, tmp_path):
    scores = evaluate_rows([rows[1]], None, {"names": ["lpips"]}, tmp_path, "cpu")
    assert scores.figures["row"] == {}
    assert "LPIPS (alex): left out, there are no images of the baseline" in scores.notes[0]
