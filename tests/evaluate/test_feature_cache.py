import os

import numpy as np
import pytest

from experiments.metrics import features
from experiments.metrics.features import FeatureStore
from experiments.metrics.hashes import hash_files, known_hashes


def ask(folder, keys, calls, values, notes=None):
    def compute(positions):
        for i in positions:
            calls.append(i)
            yield values[[i]]

    store = FeatureStore(folder, [] if notes is None else notes)
    return store.get(list(keys), compute, "test")


def test_only_what_is_missing_is_computed_and_each_key_once(tmp_path):
    values, calls = np.arange(10.0).reshape(5, 2), []
    assert (ask(tmp_path, "ab", calls, values).array() == values[:2]).all()
    found = ask(tmp_path, "cbba", calls, values)
    assert calls == [0, 1, 0]  # a, b; then c alone
    assert found.shape == (4, 2)
    assert found.array().tolist() == values[[0, 1, 1, 0]].tolist()
    assert ask(tmp_path, "ddab", calls, values).array()[0].tolist() == values[0].tolist()
    assert calls[3:] == [0]
    assert ask(tmp_path, "", calls, values).shape[0] == 0


def test_chunks_are_in_order_across_shards_and_read_from_the_disk(tmp_path):
    values = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    keys = [f"k{i}" for i in range(60)]
    for start in (40, 0, 20):
        ask(tmp_path, keys[start : start + 20], [], values[start : start + 20])
    found = ask(tmp_path, keys, calls := [], values)
    assert calls == []
    chunks = list(found.chunks(7))
    assert [len(chunk) for chunk in chunks] == [7] * 8 + [4]
    assert (np.concatenate(chunks) == values).all()
    assert (found.rows([59, 3]).array() == values[[59, 3]]).all()
    assert all(isinstance(shard, np.memmap) for shard in found._shards)


def test_what_was_finished_survives_an_interruption(tmp_path):
    values, calls = np.arange(8.0).reshape(4, 2), []

    def interrupted(positions):
        yield values[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FeatureStore(tmp_path, []).get(list("abcd"), interrupted, "test")
    assert (ask(tmp_path, "abcd", calls, values).array() == values).all()
    assert calls == [2, 3]
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_long_extraction_is_saved_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SAVE_EVERY", -1.0)
    values, seen = np.ones((3, 2)), []

    def compute(positions):
        for i in positions:
            seen.append(len(list(tmp_path.glob("*.txt"))))
            yield values[[i]]

    FeatureStore(tmp_path, []).get(list("abc"), compute, "test")
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"text", "cut", "another width"])
def test_an_unreadable_shard_is_rebuilt_and_this_is_said(tmp_path, content):
    values, notes, calls = np.arange(6.0).reshape(3, 2), [], []
    ask(tmp_path, "ab", [], values)
    (shard,) = tmp_path.glob("*.npy")
    if content == "another width":
        np.save(shard, np.ones((3, 2), np.float32))
    else:
        shard.write_bytes(shard.read_bytes()[:-4] if content == "cut" else content)
    assert (ask(tmp_path, "ab", calls, values, notes).array() == values[:2]).all()
    assert calls == [0, 1]
    assert notes == [
        f"The feature cache {tmp_path.name}/{shard.name} was unreadable and was rebuilt."
    ]
    assert ask(tmp_path, "ab", calls := [], values, notes) is not None
    assert (calls, len(notes)) == ([], 1)


def test_features_without_their_keys_do_not_count(tmp_path):
    values = np.ones((2, 2))
    ask(tmp_path, "ab", [], values)
    next(tmp_path.glob("*.txt")).unlink()
    ask(tmp_path, "ab", calls := [], values, notes := [])
    assert (calls, notes) == ([0, 1], [])


def test_too_few_features_are_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="1 features for 2 images"):
        FeatureStore(tmp_path, []).get(["a", "b"], lambda _: iter([np.ones((1, 2))]), "test")


def test_unchanged_files_are_not_read_and_changed_ones_are_counted(tmp_path, monkeypatch):
    names = ["a", "b", "c"]
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.write_text(path.name)
    index = tmp_path / "index.json"
    assert known_hashes(names, index) is None
    before, changed = hash_files(names, paths, index, [], "test")
    assert changed == 0
    assert len(set(before)) == 3

    read = []
    original = hash_files.__globals__["image_sha256"]
    monkeypatch.setitem(
        hash_files.__globals__, "image_sha256", lambda p: read.append(p.name) or original(p)
    )
    assert hash_files(names, paths, index, [], "test") == (before, 0)
    assert read == []
    paths[1].write_text("edited")
    os.utime(paths[2], ns=(1, 1))  # another time, the same content
    after, changed = hash_files(names, paths, index, [], "test")
    assert changed == 1
    assert read == ["b", "c"]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    assert known_hashes(names, index) == after

    index.write_text("{broken")
    assert hash_files(names, paths, index, notes := [], "test") == (after, 0)
    assert "index.json was unreadable and was rebuilt" in notes[0]
    paths[0].unlink()
    with pytest.raises(FileNotFoundError):
        hash_files(names, paths, index, [], "test")
