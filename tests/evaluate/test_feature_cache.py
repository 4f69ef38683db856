import dataclasses
import os

import numpy as np
import pytest

from experiments.evaluate import evaluate_rows, features
from experiments.evaluate.features import cached_features


def counting(calls, values):
    def compute(positions):
        for i in positions:
            calls.append(i)
            yield values[[i]]

    return compute


def ask(path, keys, stamps, calls, values, notes=None):
    notes = [] if notes is None else notes
    return cached_features(path, keys, stamps, counting(calls, values), notes, "test")


def test_only_new_and_changed_keys_are_computed(tmp_path):
    path, values, calls = tmp_path / "f.npz", np.arange(10.0).reshape(5, 2), []
    assert (ask(path, list("ab"), ["1", "1"], calls, values) == values[:2]).all()
    found = ask(path, list("cba"), ["1", "2", "1"], calls, values)
    assert calls == [0, 1, 0, 1]  # a, b; then c (new) and b (changed), not a
    assert found.tolist() == [values[0].tolist(), values[1].tolist(), values[0].tolist()]
    # Keys that are not asked for stay known; a repeated one is computed once.
    assert ask(path, list("ddab"), ["1", "1", "1", "2"], calls, values).shape == (4, 2)
    assert calls[4:] == [0]
    assert not [p for p in tmp_path.iterdir() if p.name != "f.npz"]


def test_what_was_finished_survives_an_interruption(tmp_path):
    path, values, calls = tmp_path / "f.npz", np.arange(8.0).reshape(4, 2), []

    def interrupted(positions):
        yield values[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_features(path, list("abcd"), ["1"] * 4, interrupted, [], "test")
    assert (ask(path, list("abcd"), ["1"] * 4, calls, values) == values).all()
    assert calls == [2, 3]


def test_a_long_extraction_is_saved_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SAVE_EVERY", 0.0)
    path, values, seen = tmp_path / "f.npz", np.ones((3, 2)), []

    def compute(positions):
        for i in positions:
            seen.append(path.exists())
            yield values[[i]]

    cached_features(path, list("abc"), ["1"] * 3, compute, [], "test")
    assert seen == [False, True, True]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"text"])
def test_an_unreadable_file_is_rebuilt_and_this_is_said(tmp_path, content):
    path, values, notes = tmp_path / "f.npz", np.ones((1, 2)), []
    path.write_bytes(content)
    assert (ask(path, ["a"], ["1"], [], values, notes) == 1).all()
    assert "f.npz was unreadable and was rebuilt" in notes[0]
    assert ask(path, ["a"], ["1"], calls := [], values) is not None
    assert calls == []


def test_extended_prompts_compute_only_what_is_missing(
    textured, write_row, tmp_path, scorer, monkeypatch
):
    read = []
    original = evaluate_rows.__globals__["clip_score"].image_features
    monkeypatch.setattr(
        "experiments.evaluate.clip_score.image_features",
        lambda clip, images: read.extend(images) or original(clip, images),
    )
    metrics = {"names": ["clip_toy"], "scorer": str(scorer)}
    row = write_row(tmp_path, "row", textured(5, 41, size=64), ["a red ring"] * 5)
    short = dataclasses.replace(row, prompts=row.prompts[:3], images=row.images[:3])
    few = evaluate_rows([short], None, metrics, tmp_path, "cpu")
    assert len(read) == 3
    all_five = evaluate_rows([row], None, metrics, tmp_path, "cpu")
    assert len(read) == 5
    assert all_five.per_image["clip_toy"][:3].tolist() == few.per_image["clip_toy"].tolist()
    evaluate_rows([row], None, metrics, tmp_path, "cpu")
    assert len(read) == 5
    os.utime(row.images[1], ns=(1, 1))  # somebody replaced a picture
    evaluate_rows([row], None, metrics, tmp_path, "cpu")
    assert len(read) == 6
