import dataclasses

import numpy as np
import pytest

from experiments.metrics.entry import evaluate_rows
from experiments.painting.store import Prompt


@pytest.fixture
def faulty(textured, write_row, tmp_path):
    """Eight images: two black, one grey, three the same, one off black, one fine."""
    pictures = textured(8, 71, size=32)
    pictures[1] = pictures[4] = 0
    pictures[2] = (90, 100, 110)
    pictures[5] = pictures[6] = pictures[0]
    pictures[7] = 0
    pictures[7, 0, 0] = 1
    return write_row(tmp_path, "row", pictures, list("abcdefgh"), seed=10)


def test_black_constant_and_duplicate_images_are_counted_and_named(faulty, tmp_path):
    scores = evaluate_rows([faulty], None, {"names": []}, tmp_path, "cpu")
    found = scores.protocol["audit"]["row"]
    assert found["black"] == {"count": 2, "images": ["“b” (seed 11)", "“e” (seed 14)"]}
    assert found["constant"] == {"count": 1, "images": ["“c” (seed 12)"]}
    assert found["duplicates"]["count"] == 5  # a, f, g and the two black ones
    assert "“f” (seed 15)" in found["duplicates"]["images"]
    assert "“d” (seed 13)" not in found["duplicates"]["images"]
    notes = " ".join(scores.notes)
    assert "2 of the 8 images of row row are black, as NaN leaves them: “b” (seed 11), " in notes
    assert "1 of the 8 images of row row are of one colour: “c” (seed 12)." in notes
    assert "5 of the 8 images of row row are pixel for pixel" in notes
    assert ", …" in notes


def test_a_sound_row_is_not_talked_about(textured, write_row, tmp_path):
    row = write_row(tmp_path, "row", textured(3, 72, size=32))
    scores = evaluate_rows([row], None, {"names": []}, tmp_path, "cpu")
    assert scores.notes == []
    assert all(entry["count"] == 0 for entry in scores.protocol["audit"]["row"].values())


def test_an_image_that_is_asked_for_twice_is_no_duplicate(textured, write_row, tmp_path):
    row = write_row(tmp_path, "row", textured(2, 73, size=32))
    twice = dataclasses.replace(
        row, prompts=row.prompts + row.prompts[:1], images=row.images + row.images[:1]
    )
    scores = evaluate_rows([twice], None, {"names": []}, tmp_path, "cpu")
    assert scores.protocol["audit"]["row"]["duplicates"]["count"] == 0
    (note,) = scores.notes
    assert "1 of the 3 images repeat the prompt and seed of another" in note


def test_another_size_is_another_picture(write_row, tmp_path):
    wide, high = np.full((4, 8, 3), 7, np.uint8), np.full((8, 4, 3), 7, np.uint8)
    row = write_row(tmp_path, "row", [wide, high])
    assert row.prompts[0] == Prompt("picture 0", 0, "0")
    scores = evaluate_rows([row], None, {"names": []}, tmp_path, "cpu")
    assert scores.protocol["audit"]["row"]["duplicates"]["count"] == 0
    assert scores.protocol["audit"]["row"]["constant"]["count"] == 2
