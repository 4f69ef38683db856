"""Images on disk: whole or absent, found again, never mixed."""

import os
import time
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from experiments.common.files import write_atomically
from experiments.metrics.images import read_image
from experiments.painting.packed import opened
from experiments.painting.store import ImageStore, Prompt, differing_keys, read_record


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


def painted(store, count):
    prompts = [Prompt("a cat", seed) for seed in range(count)]
    for prompt in prompts:
        store.write(prompt, picture(prompt.seed), {"merged_share": prompt.seed / 10})
    return prompts


def test_packed_images_are_read_as_loose_ones(store):
    prompts = painted(store, 4)
    loose = [opened(store.path(p)).read() for p in prompts]
    zipped = store.pack(prompts[:3])
    assert sorted(p.suffix for p in store.folder.rglob("*.*")) == [".png", ".zip"]
    assert store.missing(prompts) == []
    assert [opened(store.path(p)).read() for p in prompts] == loose
    assert read_image(store.path(prompts[2])).getpixel((0, 0)) == (2, 1, 2)
    assert store.record(prompts[2])["merged_share"] == 0.2
    with zipfile.ZipFile(zipped) as archive:
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
    # Another process, which looks at the folder itself, and one that was there before.
    other = ImageStore(store.folder.parents[1], store.identity)
    assert other.missing(prompts) == []
    store.pack(prompts)
    assert len(list(store.folder.glob("*.zip"))) == 2
    assert other.missing(prompts) == []
    assert store.pack(prompts) is None


def test_packing_goes_on_after_a_kill_before_the_loose_ones_were_deleted(store, monkeypatch):
    prompts = painted(store, 3)
    with monkeypatch.context() as context:
        context.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.pack(prompts)
    assert store.missing(prompts) == []
    assert store.pack(prompts) is None
    assert [p.suffix for p in store.folder.rglob("*.*")] == [".zip"]


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_an_image_truncated_in_a_zip_is_not_done(store):
    prompts = painted(store, 3)
    cut = store.path(prompts[1])
    whole = cut.read_bytes()
    packed = store.pack(prompts)
    with zipfile.ZipFile(packed) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content[:-5] if name == cut.name else content)
    again = ImageStore(store.folder.parents[1], store.identity)
    assert again.missing(prompts) == [prompts[1]]
    again.write(prompts[1], picture(1), {"merged_share": 0.1})
    assert again.path(prompts[1]).read_bytes() == whole


@pytest.mark.parametrize("packed", [False, True])
def test_a_record_may_be_long(store, packed):
    prompt = Prompt("a cat " * 5000, 0)
    store.write(prompt, picture(0), {"merged_share": 0.5})
    if packed:
        store.pack([prompt])
    assert store.record(prompt)["prompt"] == prompt.text
    assert [r["merged_share"] for r in store.records([prompt])] == [0.5]


@pytest.mark.parametrize("keep", [0, 100])
def test_a_broken_zip_counts_for_nothing(store, keep):
    prompts = painted(store, 3)
    packed = store.pack(prompts)
    packed.write_bytes(packed.read_bytes()[:keep])
    assert ImageStore(store.folder.parents[1], store.identity).missing(prompts) == prompts


@pytest.mark.parametrize("packed", [False, True])
def test_images_left_out_count_as_done_and_keep_their_records(store, packed):
    prompts = painted(store, 5)
    if packed:
        store.pack(prompts)
    hashes = [str(p.seed) * 64 for p in prompts[2:]]
    assert store.leave_out(prompts[2:], hashes) == 3
    again = ImageStore(store.folder.parents[1], store.identity)
    assert again.missing(prompts) == []
    assert [again.record(p)["merged_share"] for p in prompts] == [0.0, 0.1, 0.2, 0.3, 0.4]
    stranger = Prompt("a dog", 0)
    assert again.record(stranger) is None
    assert list(again.records([stranger])) == []
    records = sorted(again.records([*prompts, stranger]), key=lambda r: r["seed"])
    assert records == [again.record(p) for p in prompts]
    row = again.painted("row", prompts)
    assert [row.left_out.get(path) for path in row.images] == [None, None, *hashes]
    assert [is_there(path) for path in row.images] == [True, True, False, False, False]
    assert again.leave_out(prompts[2:], hashes) == 0
    again.clear()
    assert again.missing(prompts) == prompts


def is_there(path):
    try:
        return bool(opened(path).read())
    except OSError:
        return False


def test_a_kill_between_record_and_deletion_is_made_up_for(store, monkeypatch):
    prompts = painted(store, 3)
    with monkeypatch.context() as context:
        context.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.leave_out(prompts[1:], ["1" * 64, "2" * 64])
    store.leave_out(prompts[1:], ["1" * 64, "2" * 64])
    assert len(list(store.folder.rglob("*.png"))) == 1
