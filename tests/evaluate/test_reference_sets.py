"""Folders, lists and statistics as the reference, in the features of a small model."""

import numpy as np
import pytest
from PIL import Image
from transformers import AutoImageProcessor, Dinov2Model

from experiments.common.errors import ConfigError
from experiments.common.files import file_sha256
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.frechet import frechet_distance, gaussian
from experiments.metrics.statistics import write_statistics


@pytest.fixture
def sets(textured, write_row, photographs, tmp_path):
    return (
        photographs(tmp_path / "photographs", textured(5, 81, size=40)),
        write_row(tmp_path, "row", textured(4, 82, contrast=25, size=40)),
    )


@pytest.fixture
def distance(dinov2, tmp_path):
    """Function: the scores of FD-DINOv2 and its value for the first row."""

    def measure(row, reference, **settings):
        metrics = {
            "names": ["fd_dinov2"],
            "dinov2_model": str(dinov2),
            "reference": str(reference),
            **settings,
        }
        scores = evaluate_rows([row], None, metrics, tmp_path, "cpu")
        return scores, scores.figures[row.row][f"FD-DINOv2 ({dinov2.name})"]

    return measure


def class_tokens(folder, paths):
    """Straight from the model's last layer, one picture at a time."""
    model = Dinov2Model.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    tokens = []
    for path in paths:
        inputs = processor(images=Image.open(path), return_tensors="pt")
        tokens.append(model(**inputs).last_hidden_state[0, 0].detach().numpy())
    return np.stack(tokens)


def test_fd_dinov2_is_the_distance_between_class_tokens(sets, distance, dinov2):
    reference, row = sets
    theirs = class_tokens(dinov2, sorted(reference.iterdir()))
    expected = frechet_distance(gaussian(class_tokens(dinov2, row.images)), gaussian(theirs))
    scores, found = distance(row, reference)
    assert found == pytest.approx(expected, rel=1e-3)
    assert distance(row, row.images[0].parent)[1] < 1e-3 * found  # the sets differ clearly
    assert scores.protocol["fd_dinov2"]["reference_images"] == 5


def test_statistics_of_the_same_features_give_the_same_distance(sets, distance, dinov2, tmp_path):
    reference, row = sets
    tokens = class_tokens(dinov2, sorted(reference.iterdir()))
    path = tmp_path / "statistics.npz"
    write_statistics(path, tokens.mean(axis=0), np.cov(tokens, rowvar=False))
    _, expected = distance(row, reference)
    scores, found = distance(row, path)
    assert found == pytest.approx(expected, rel=1e-3)
    assert any("statistics statistics.npz (SHA-256 " in note for note in scores.notes)
    assert scores.protocol["fd_dinov2"]["reference_images"] is None


def test_statistics_of_another_feature_size_or_with_nan_are_refused(sets, distance, tmp_path):
    _, row = sets
    path = tmp_path / "statistics.npz"
    write_statistics(path, np.zeros(7), np.eye(7))
    with pytest.raises(ConfigError, match=r"reference=.*statistics of 7 features, but .* 32 "):
        distance(row, path)
    write_statistics(path, np.full(32, np.nan), np.eye(32))
    with pytest.raises(ConfigError, match=r"metrics.reference=.*holds NaN") as caught:
        distance(row, path)
    assert "\n" not in str(caught.value)


def test_a_list_names_its_images_and_a_changed_one_is_refused(sets, distance, tmp_path):
    reference, row = sets
    chosen = sorted(reference.iterdir())[1:4]
    lines = [f"{file_sha256(p)}  {p.relative_to(tmp_path)}\n" for p in chosen]
    path = tmp_path / "set.txt"
    path.write_text("# source: made-up photographs\n" + "".join(lines))
    scores, found = distance(row, path)
    for other in set(reference.iterdir()) - set(chosen):
        other.unlink()
    assert found == pytest.approx(distance(row, reference)[1], rel=1e-6)
    note = next(note for note in scores.notes if note.startswith("FD-DINOv2"))
    assert "3 images of set.txt (list " in note
    assert ", its head: source: made-up photographs" in note
    Image.open(chosen[0]).convert("L").save(chosen[0])
    with pytest.raises(ConfigError, match=r"001.png is not the file that was listed"):
        distance(row, path)


def test_photographs_of_any_kind_are_read_and_copies_are_counted(
    textured, write_row, distance, tmp_path
):
    folder = tmp_path / "mixed"
    folder.mkdir()
    wide = Image.fromarray(textured(1, 83, size=60)[0]).crop((0, 0, 60, 41))
    exif = Image.Exif()
    exif[0x0112] = 8
    wide.save(folder / "turned.jpg", exif=exif)
    wide.convert("CMYK").save(folder / "cmyk.jpeg")
    wide.convert("P").save(folder / "palette.png")
    wide.convert("L").save(folder / "grey.webp", lossless=True)
    wide.convert("RGBA").save(folder / "alpha.png")
    Image.fromarray(np.arange(900, dtype=np.uint16).reshape(30, 30) * 70).save(folder / "deep.png")
    (folder / "copy.png").write_bytes((folder / "alpha.png").read_bytes())
    (folder / "notes.txt").write_text("no picture")
    row = write_row(tmp_path, "row", textured(3, 84, size=40))
    scores, found = distance(row, folder)
    assert found > 0
    note = next(note for note in scores.notes if note.startswith("FD-DINOv2"))
    assert "7 images of mixed" in note
    assert "1 other files ignored, 1 of them copies of others" in note


def test_edited_photographs_are_measured_again_and_counted(sets, distance, textured):
    reference, row = sets
    _, before = distance(row, reference)
    Image.fromarray(textured(1, 85, size=40)[0]).save(reference / "002.png")
    scores, after = distance(row, reference)
    assert after != before
    assert any("1 images of the reference photographs are not those" in n for n in scores.notes)


def test_a_broken_photograph_is_named_and_one_alone_is_no_set(sets, distance):
    reference, row = sets
    (reference / "002.png").write_bytes((reference / "002.png").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"002.png: cannot be read as an image"):
        distance(row, reference)
    for path in sorted(reference.iterdir())[1:]:
        path.unlink()
    with pytest.raises(ValueError, match=r"metrics.reference=.*at least 2 images are needed"):
        distance(row, reference)


def test_rows_of_another_size_are_warned_about(sets, write_row, textured, dinov2, tmp_path):
    reference, row = sets
    larger = write_row(tmp_path, "larger", textured(3, 86, size=48))
    metrics = {
        "names": ["fd_dinov2"], "dinov2_model": str(dinov2), "reference": str(reference)
    }  # fmt: skip
    scores = evaluate_rows([row, larger], None, metrics, tmp_path, "cpu")
    assert any("differ in size; the reference was prepared for those of 40 x 40" in n
               for n in scores.notes)  # fmt: skip


def test_another_kind_of_model_is_refused(sets, scorer, tmp_path):
    reference, row = sets
    metrics = {
        "names": ["fd_dinov2"], "dinov2_model": str(scorer), "reference": str(reference)
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"dinov2_model=.*must be a Dinov2Model, not a .* clip"):
        evaluate_rows([row], None, metrics, tmp_path, "cpu")
