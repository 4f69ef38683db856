"""Images on disk: whole or absent, found again, never mixed."""

import os
import time

import pytest
from PIL import Image

from experiments.store import ImageStore, Prompt, differing_keys, read_record, write_atomically


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path, {"model": {"content": "m"}, "steps": 4})


def picture(value=0):
    return Image.new("RGB", (8, 8), (value, 1, 2))


def test_write_read_and_missing(store):
    prompts = [Prompt("a cat", 1), Prompt("a dog", 2), Prompt("a cat", 1)]
    assert store.missing(prompts) == prompts[:2]
    store.write(prompts[0], picture(9), {"merged_share": 0.5})
    assert store.missing(prompts) == [prompts[1]]
    record = read_record(store.path(prompts[0]))
    assert record == {
        "prompt": "a cat", "seed": 1, "painter": store.painter, "merged_share": 0.5,
    }  # fmt: skip
    with Image.open(store.path(prompts[0])) as image:
        assert image.getpixel((0, 0)) == (9, 1, 2)


@pytest.mark.parametrize("keep", [0, 4, 30, -1])
def test_a_truncated_image_is_not_done(store, keep):
    prompt = Prompt("a cat", 1)
    store.write(prompt, picture(), {})
    path = store.path(prompt)
    path.write_bytes(path.read_bytes()[:keep])
    assert not store.has(prompt)


def test_a_failed_write_leaves_nothing(tmp_path):
    def fail(path):
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "x.json", fail)
    assert list(tmp_path.iterdir()) == []


def test_another_seed_or_text_is_another_image():
    keys = {Prompt("a", 1).key, Prompt("a", 2).key, Prompt("b", 1).key}
    assert len(keys) == 3
    assert Prompt("a", 1, "7").key == Prompt("a", 1, "8").key


def test_identity_decides_the_folder(tmp_path):
    one = ImageStore(tmp_path, {"steps": 4, "method": {"ratio": 0.5}})
    same = ImageStore(tmp_path, {"method": {"ratio": 0.5}, "steps": 4})
    other = ImageStore(tmp_path, {"steps": 5, "method": {"ratio": 0.5}})
    assert one.folder == same.folder != other.folder
    assert differing_keys(one.identity, other.identity) == ["steps"]


def test_ten_thousand_files_a_folder_at_most(store):
    # 256 subfolders: 30,000 images put about 117 into each.
    folders = {store.path(Prompt("p", i)).parent.name for i in range(4000)}
    assert len(folders) == 256


def test_what_a_killed_process_left_is_deleted_once_it_is_old(store):
    prompt = Prompt("a cat", 1)
    store.write(prompt, picture(), {})
    folder = store.path(prompt).parent
    old, young = folder / ".a.png.17.tmp", folder / ".b.png.18.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    hours_ago = time.time() - 2 * 3600
    os.utime(old, (hours_ago, hours_ago))
    store.forget_unfinished()
    assert not old.exists()
    assert young.exists()
    assert store.has(prompt)
