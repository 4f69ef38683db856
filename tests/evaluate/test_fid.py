import numpy as np
import pytest
import torch
from PIL import Image
from torch_fidelity import calculate_metrics

from experiments.config import ConfigError
from experiments.evaluate import evaluate_rows
from experiments.evaluate.inception import fid_column, file_sha256, load_inception


@pytest.fixture(scope="module")
def sets(textured, write_row, tmp_path_factory):
    """Photographs in a folder, and a row of pictures of another kind, of the same size."""
    folder = tmp_path_factory.mktemp("fid")
    reference = folder / "photographs"
    reference.mkdir()
    for i, picture in enumerate(textured(10, 11)):
        Image.fromarray(picture).save(reference / f"{i:03d}.png")
    return reference, write_row(folder, "row", textured(9, 12, contrast=25))


def settings(reference, weights, **more):
    return {
        "names": ["fid"],
        "reference": str(reference),
        "inception_weights": str(weights),
        **more,
    }


def test_equals_torch_fidelity_on_the_same_files_and_differs_between_sets(
    write_row, sets, inception_weights, tmp_path
):
    reference, row = sets
    scores = evaluate_rows([row], None, settings(reference, inception_weights), tmp_path, "cpu")
    theirs = calculate_metrics(
        input1=str(row.images[0].parent),
        input2=str(reference),
        fid=True,
        cuda=False,
        cache=False,
        save_cpu_ram=True,
        verbose=False,
        feature_extractor_weights_path=str(inception_weights),
    )["frechet_inception_distance"]
    column = f"FD (Inception {file_sha256(inception_weights)[:8]})"
    ours = scores.figures["row"][column]
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert scores.counts["row"][column] == 9
    assert any("rank-deficient" in note and "n = 9" in note for note in scores.notes)

    # The same photographs as a row are at (almost) no distance, so the other set's is no accident.
    pictures = [np.asarray(Image.open(p)) for p in sorted(reference.iterdir())]
    same = write_row(tmp_path, "same", pictures)
    again = evaluate_rows([same], None, settings(reference, inception_weights), tmp_path, "cpu")
    assert ours > 5
    assert again.figures["same"][column] < 1e-3 * ours


def test_reference_photographs_are_cropped_and_resized_and_this_is_said(
    textured, write_row, sets, inception_weights, tmp_path
):
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    for i, picture in enumerate(textured(3, 21, size=120)):
        # Wider than high: what a centre crop must remove is black.
        wide = np.zeros((120, 200, 3), np.uint8)
        wide[:, 40:160] = picture
        Image.fromarray(wide).save(photographs / f"{i}.jpg", quality=95)
    (photographs / "list.txt").write_text("not a picture")
    row = write_row(tmp_path, "r", textured(3, 22))
    figures, notes = [], []
    for how in ({"crop": "center", "filter": "bicubic"}, {"crop": "none"}):
        scores = evaluate_rows(
            [row],
            None,
            settings(photographs, inception_weights, reference_size=how),
            tmp_path,
            "cpu",
        )
        figures += scores.figures["r"].values()
        notes.append(" ".join(scores.notes))
    assert "centre-cropped, resized to 96 x 96 with PIL's bicubic filter" in notes[0]
    assert "3 images of photographs" in notes[0]
    assert "1 other files ignored" in notes[0]
    assert "not cropped" in notes[1]
    assert "lanczos" in notes[1]
    assert figures[1] > 1.2 * figures[0]


def test_only_the_standard_weights_give_a_column_called_fid():
    assert fid_column("6726825d" + "0" * 56) == "FID"
    assert fid_column("6726825e" + "0" * 56) == "FD (Inception 6726825e)"


def test_a_file_that_is_no_inception_is_refused_in_one_line(tmp_path):
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("no weights")
    for name in ("other.pth", "text.pth"):
        with pytest.raises(ConfigError, match=r"metrics.inception_weights=") as caught:
            load_inception(tmp_path / name, "cpu")
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)


class Reckless:
    def __reduce__(self):
        return print, ("unpickled",)


def test_a_weights_file_cannot_run_code(tmp_path, capsys):
    torch.save(Reckless(), tmp_path / "reckless.pth")
    with pytest.raises(ConfigError):
        load_inception(tmp_path / "reckless.pth", "cpu")
    assert "unpickled" not in capsys.readouterr().out


def test_a_failed_download_names_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(
        "experiments.evaluate.inception.FeatureExtractorInceptionV3.__init__",
        lambda *args, **kwargs: (_ for _ in ()).throw(OSError("no network")),
    )
    with pytest.raises(ConfigError, match=r"metrics.inception_weights=null: .*no network.*file"):
        load_inception(None, "cpu")
