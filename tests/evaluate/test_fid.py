"""torch-fidelity's Inception v3: FID, KID, Inception Score, precision and recall."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from torch_fidelity import calculate_metrics

from experiments.common.errors import ConfigError
from experiments.common.files import file_sha256
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.inception import fid_column, load_inception, network_name, weights_column

KID = {"kid_subset_size": 6, "kid_subsets": 8}


@pytest.fixture(scope="module")
def sets(textured, write_row, photographs, tmp_path_factory):
    """Photographs in a folder, and a row of pictures of another kind, of the same size.

    The row's images are in the order of their names, the one in which torch-fidelity reads them:
    KID's subsets and the parts of the Inception Score are positions.
    """
    folder = tmp_path_factory.mktemp("fid")
    reference = photographs(folder / "photographs", textured(11, 11))
    row = write_row(folder, "row", textured(12, 12, contrast=25))
    order = np.argsort([path.name for path in row.images])
    row = dataclasses.replace(
        row,
        prompts=tuple(row.prompts[i] for i in order),
        images=tuple(row.images[i] for i in order),
    )
    return reference, row


def settings(reference, weights, **more):
    return {
        "names": ["fid"],
        "reference": str(reference),
        "inception_weights": str(weights),
        "prc_network": "inception",
        **more,
    }


@pytest.fixture(scope="module")
def measured(sets, inception_weights, write_row, tmp_path_factory):
    """Our scores of the row and of the photographs themselves, and torch-fidelity's of the row."""
    reference, row = sets
    folder = tmp_path_factory.mktemp("measured")
    pictures = [np.asarray(Image.open(p)) for p in sorted(reference.iterdir())]
    same = write_row(folder, "same", pictures)
    names = ["fid", "kid", "isc", "prc", "fid_to_baseline"]
    ours = evaluate_rows(
        [row, same],
        same,
        settings(reference, inception_weights, names=names, **KID),
        folder,
        "cpu",
    )
    theirs = calculate_metrics(
        input1=str(row.images[0].parent),
        input2=str(reference),
        feature_extractor="inception-v3-compat",  # prc has another by default
        fid=True,
        kid=True,
        isc=True,
        prc=True,
        cuda=False,
        cache=False,
        save_cpu_ram=True,
        verbose=False,
        feature_extractor_weights_path=str(inception_weights),
        **KID,
    )
    return ours, theirs, file_sha256(inception_weights)[:8]


def test_the_two_sets_differ_clearly(measured):
    # A default-initialised Inception gives a distance near zero for anything.
    ours, _, sha256 = measured
    column = f"FD (Inception {sha256})"
    assert ours.figures["row"][column] > 5
    assert ours.figures["same"][column] < 1e-3 * ours.figures["row"][column]
    assert ours.figures["same"][f"Precision (Inception {sha256})"] == 1
    assert ours.figures["same"][f"Recall (Inception {sha256})"] == 1


@pytest.mark.parametrize(
    ("column", "theirs", "tolerance"),
    [
        ("FD (Inception {})", "frechet_inception_distance", {"rel": 1e-3}),
        ("KD (Inception {})", "kernel_inception_distance_mean", {"rel": 1e-6}),
        ("IS (Inception {})", "inception_score_mean", {"rel": 1e-6}),
        ("Precision (Inception {})", "precision", {"abs": 0}),
        ("Recall (Inception {})", "recall", {"abs": 0}),
    ],
)
def test_equals_torch_fidelity_on_the_same_files(measured, column, theirs, tolerance):
    ours, reference, sha256 = measured
    column = column.format(sha256)
    assert ours.figures["row"][column] == pytest.approx(reference[theirs], **tolerance)
    assert ours.counts["row"][column] == 12


@pytest.mark.parametrize(
    ("column", "what", "theirs"),
    [
        ("KD (Inception {})", "std over 8 subsets", "kernel_inception_distance_std"),
        ("IS (Inception {})", "std over 10 parts", "inception_score_std"),
    ],
)
def test_deviations_stand_beside(measured, column, what, theirs):
    ours, reference, sha256 = measured
    found = ours.beside["row"][column.format(sha256)]
    assert found == {what: pytest.approx(reference[theirs], rel=1e-5)}


def test_notes_and_protocol_say_what_was_compared(measured):
    ours, _, sha256 = measured
    notes = " ".join(ours.notes)
    assert "rank-deficient" in notes
    assert "n = 11 images" in notes
    assert "8 subsets of 6 images, cubic kernel, seed 2020" in notes
    for metric in ("fid", "kid", "isc", "prc", "fid_to_baseline"):
        assert ours.protocol[metric]["weights_sha256"].startswith(sha256)
    assert ours.protocol["fid"]["reference_images"] == 11
    assert ours.protocol["isc"]["reference"] is None


def test_the_distance_to_the_baseline_is_no_fid(measured):
    # The baseline here is the photographs: the same value, under its own name.
    ours, _, sha256 = measured
    column = f"FD to baseline (Inception {sha256})"
    expected = ours.figures["row"][f"FD (Inception {sha256})"]
    assert ours.figures["row"][column] == pytest.approx(expected, rel=1e-6)
    assert ours.figures["same"][column] is None
    assert any("11 images of row same; it is no FID" in note for note in ours.notes)
    assert not [c for c in ours.figures["row"] if "FID" in c]


def test_features_are_extracted_once_for_all_metrics_and_rows(
    sets, write_row, inception_weights, tmp_path, monkeypatch
):
    reference, row = sets
    seen = []

    def count(model, images, device):
        seen.extend(images)
        means = [np.asarray(i, np.float32).mean((0, 1)) for i in images]
        return np.tile(means, (1, 683))[:, :2048]

    monkeypatch.setattr("experiments.metrics.inception.inception_features", count)
    short = dataclasses.replace(row, row="short", prompts=row.prompts[:4], images=row.images[:4])
    copies = [np.asarray(Image.open(p)) for p in row.images]
    other = write_row(tmp_path, "other", copies)  # another painter's files with the same bytes
    names = ["fid", "kid", "isc", "prc", "fid_to_baseline"]
    metrics = settings(reference, inception_weights, names=names, **KID)
    evaluate_rows([short, row, other], row, metrics, tmp_path, "cpu")
    assert len(seen) == 12 + 11
    evaluate_rows([row], row, metrics, tmp_path, "cpu")
    assert len(seen) == 12 + 11


def test_too_few_images_leave_a_metric_undefined_and_this_is_said(
    sets, write_row, textured, inception_weights, tmp_path
):
    reference, _ = sets
    row = write_row(tmp_path, "two", textured(2, 15))
    one = write_row(tmp_path, "one", textured(1, 16))
    metrics = settings(reference, inception_weights, names=["fid", "kid", "isc", "prc"])
    scores = evaluate_rows([row], None, metrics, tmp_path, "cpu")
    figures = {column.split()[0]: value for column, value in scores.figures["two"].items()}
    assert figures["FD"] > 0
    assert np.isfinite(figures["KD"])
    assert figures["IS"] is figures["Precision"] is figures["Recall"] is None
    notes = " ".join(scores.notes)
    assert "subsets of 2 images (metrics.kid_subset_size is 1000, there are not so many)" in notes
    assert "Needs at least 10 images" in notes
    scores = evaluate_rows([one], None, metrics, tmp_path, "cpu")
    assert set(scores.figures["one"].values()) == {None}


def test_reference_photographs_are_cropped_and_resized_and_this_is_said(
    textured, write_row, inception_weights, tmp_path
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
    assert weights_column("KID", "KD", "6726825d" + "0" * 56) == "KID"
    assert network_name("6726825d" + "0" * 56) == "Inception"


def test_a_file_that_is_no_inception_is_refused_in_one_line(tmp_path):
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("no weights")
    for name in ("other.pth", "text.pth"):
        with pytest.raises(ConfigError, match=r"metrics.inception_weights=") as caught:
            load_inception(tmp_path / name, "cpu")
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)


def test_a_weights_file_cannot_run_code(tmp_path, capsys, reckless):
    torch.save(reckless, tmp_path / "reckless.pth")
    with pytest.raises(ConfigError):
        load_inception(tmp_path / "reckless.pth", "cpu")
    assert "unpickled" not in capsys.readouterr().out


def test_a_failed_download_names_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(
        "experiments.metrics.inception.FeatureExtractorInceptionV3.__init__",
        lambda *args, **kwargs: (_ for _ in ()).throw(OSError("no network")),
    )
    with pytest.raises(ConfigError, match=r"metrics.inception_weights=null: .*no network.*file"):
        load_inception(None, "cpu")
