"""What becomes of a finished run's features when its images are extended, edited or deleted."""

import dataclasses
import os

import numpy as np
import pytest
from PIL import Image

from experiments.metrics import clip_model
from experiments.metrics.context import painted_feature_array
from experiments.metrics.entry import evaluate_rows


@pytest.fixture
def run(textured, write_row, tmp_path, scorer, monkeypatch):
    """A row of five images, a function that evaluates rows, and the pictures it looked at."""
    looked_at = []
    original = clip_model.image_features
    monkeypatch.setattr(
        "experiments.metrics.clip_model.image_features",
        lambda clip, images: looked_at.extend(images) or original(clip, images),
    )

    def evaluate(*rows, **settings):
        metrics = {"names": ["clip_toy"], "scorer": str(scorer), **settings}
        return evaluate_rows(list(rows), None, metrics, tmp_path, "cpu")

    row = write_row(tmp_path, "row", textured(5, 41, size=64), ["a red ring"] * 5)
    return row, evaluate, looked_at


def test_extended_prompts_compute_only_what_is_missing(run):
    row, evaluate, looked_at = run
    short = dataclasses.replace(row, prompts=row.prompts[:3], images=row.images[:3])
    few = evaluate(short)
    assert len(looked_at) == 3
    all_five = evaluate(row)
    assert len(looked_at) == 5
    assert all_five.per_image["clip_toy"][:3].tolist() == few.per_image["clip_toy"].tolist()
    evaluate(row, dataclasses.replace(short, row="short"))
    assert len(looked_at) == 5


def test_edited_images_are_computed_again_and_counted(run, textured):
    row, evaluate, looked_at = run
    before = evaluate(row)
    os.utime(row.images[0], ns=(1, 1))  # copied elsewhere and back: the same content
    assert not [note for note in evaluate(row).notes if "Warning" in note]
    assert len(looked_at) == 5
    for i in (1, 4):
        Image.fromarray(textured(1, 60 + i, size=64)[0]).save(row.images[i])
    after = evaluate(row)
    assert len(looked_at) == 7
    (note,) = [note for note in after.notes if note.startswith("Warning")]
    assert "2 images of row row are not those that were measured before" in note
    changed = after.per_image["clip_toy"] != before.per_image["clip_toy"]
    assert changed.tolist() == [False, True, False, False, True]
    assert not [note for note in evaluate(row).notes if "Warning" in note]


def test_a_deleted_image_is_an_error_that_names_it(run):
    row, evaluate, _ = run
    evaluate(row)
    row.images[3].unlink()
    with pytest.raises(ValueError, match=rf"row row: .*{row.images[3].name} is missing; run the"):
        evaluate(row)


def test_a_truncated_image_is_an_error_that_names_it_and_the_others_are_kept(run):
    row, evaluate, looked_at = run
    row.images[4].write_bytes(row.images[4].read_bytes()[:100])
    with pytest.raises(ValueError, match=rf"{row.images[4].name}: cannot be read as an image"):
        evaluate(row, batch_size=2)
    assert len(looked_at) == 4


def test_corrupt_features_are_rebuilt_and_this_is_said(run, tmp_path):
    row, evaluate, looked_at = run
    before = evaluate(row)
    for shard in (tmp_path / "features").glob("*/*.npy"):
        shard.write_bytes(b"\x93NUMPY broken")
    after = evaluate(row)
    assert len(looked_at) == 10
    assert after.figures == before.figures
    rebuilt = [note for note in after.notes if "was unreadable and was rebuilt" in note]
    assert len(rebuilt) == 3  # of images, of prompts, and what the audit found


def test_what_is_done_to_painted_images_has_its_own_features_and_is_said(run):
    row, evaluate, looked_at = run
    plain = evaluate(row)
    assert plain.protocol["painted"]["format"] == "png"
    assert not [note for note in plain.notes if note.startswith("Painted images were")]
    found = evaluate(row, painted={"format": "jpeg", "quality": 5, "size": 32})
    assert len(looked_at) == 10
    assert {image.size for image in looked_at[5:]} == {(32, 32)}
    assert found.figures["row"] != plain.figures["row"]
    note = next(note for note in found.notes if note.startswith("Painted images were"))
    assert "resized to 32 x 32 with PIL's lanczos filter, saved as JPEG of quality 5" in note
    assert found.protocol["painted"] == {
        "format": "jpeg", "quality": 5, "size": 32, "filter": "lanczos"
    }  # fmt: skip
    evaluate(row)
    assert len(looked_at) == 10


def test_a_rows_features_can_be_taken_out_in_the_order_of_its_manifest(run, tmp_path):
    row, evaluate, _ = run
    evaluate(row)
    (folder,) = [
        path
        for path in (tmp_path / "features").glob("clip-*")
        if not path.name.endswith(("-texts", "-scenes"))
    ]
    features = painted_feature_array(row, folder)
    assert features.shape[0] == 5
    turned = dataclasses.replace(row, prompts=row.prompts[::-1], images=row.images[::-1])
    assert (painted_feature_array(turned, folder) == features[::-1]).all()
    assert len(np.unique(features, axis=0)) == 5
    another = dataclasses.replace(row, painter="another")
    assert painted_feature_array(another, folder) is None
    assert painted_feature_array(row, folder.parent / "no-such-network") is None
