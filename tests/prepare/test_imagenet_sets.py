"""ImageNet's reference set from every layout it comes in."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT
from PIL import Image
from prepare_sets import (
    WNIDS,
    photograph,
    truth,
    validation,
    write_devkit,
    write_folder,
    write_tar,
)

from experiments.setup.imagenet import check_counts
from experiments.setup.sources import PrepareError
from experiments.setup.write import read_list

COUNT = 21
SMALL = ("classes=3", "per_class=5", "size=16")


def by_class():
    """{class folder/official name: photograph}, the same pictures as in the flat layout."""
    names = validation(COUNT)
    labels = truth(COUNT)
    return {
        f"{WNIDS[label - 1]}/{name}": content
        for (name, content), label in zip(names.items(), labels, strict=True)
    }


@pytest.fixture
def from_folders(tmp_path, command):
    src = write_folder(tmp_path / "val", by_class())
    out = tmp_path / "prepared"
    code, printed, error = command("imagenet", f"src={src}", f"out={out}", *SMALL)
    assert code == 0, error
    assert "15 images, 15 prepared now, 0 intact before" in printed
    return src, out


def test_the_first_five_of_each_class_in_file_order(from_folders):
    src, out = from_folders
    names = sorted(p.name for p in out.glob("*.png"))
    assert names == [p.name for p in sorted(out.rglob("*.png"))]
    expected = []
    for wnid in sorted(WNIDS):
        expected += sorted(p.stem for p in (src / wnid).iterdir())[:5]
    assert [name.split("_", 2)[2] for name in names] == [f"{stem}.png" for stem in expected]
    assert {Image.open(out / name).size for name in names} == {(16, 16)}
    first = Image.open(src / "n01" / f"{expected[0]}.JPEG").convert("RGB")
    cut = first.crop((5, 0, 35, 30)).resize((16, 16), Image.Resampling.LANCZOS)
    assert np.array_equal(Image.open(out / names[0]), cut)


def test_the_lists_of_checksums(from_folders):
    src, out = from_folders
    listed, sources = read_list(out / "files.txt"), read_list(out / "sources.txt")
    for name, checksum in listed.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == checksum
    for name, checksum in sources.items():
        assert hashlib.sha256((src / name).read_bytes()).hexdigest() == checksum
    assert list(listed) == sorted(p.name for p in out.glob("*.png"))
    assert [name.split("_", 2)[2] for name in listed] == [
        f"{name.split('/')[1].removesuffix('.JPEG')}.png" for name in sources
    ]
    head = [line for line in (out / "files.txt").read_text().splitlines() if line[0] == "#"]
    assert "# count: 15" in head
    assert "# source: val" in head
    assert "# rule: first 5 images of each of 3 classes in file order" in head
    for line in ("# crop: center", "# filter: lanczos", "# size: 16"):
        assert line in head
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "files.txt"], cwd=out, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == 15
    from experiments.metrics.file_list import read_file_list

    read = read_file_list(out / "files.txt")  # as metrics.reference does
    assert read.names == list(listed)
    assert read.sha256 == list(listed.values())
    assert read.header["count"] == "15"


def test_a_second_call_does_nothing_and_damage_is_repaired(from_folders, command):
    src, out = from_folders
    files = sorted(out.iterdir())
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in files}
    _, printed, _ = command("imagenet", f"src={src}", f"out={out}", *SMALL)
    assert "0 prepared now, 15 intact before" in printed
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(out.iterdir())} == before
    gone, cut, flipped, kept = (p for p in files[:4])
    gone.unlink()
    cut.write_bytes(before[cut][1][:-20])
    flipped.write_bytes(bytes([*before[flipped][1][:-30], 255 - before[flipped][1][-30],
                               *before[flipped][1][-29:]]))  # fmt: skip
    _, printed, _ = command("imagenet", f"src={src}", f"out={out}", *SMALL)
    assert "3 prepared now, 12 intact before" in printed
    assert {p: p.read_bytes() for p in files} == {p: before[p][1] for p in files}
    assert kept.stat().st_mtime_ns == before[kept][0]
    assert gone.stat().st_mtime_ns > before[gone][0]


def test_another_size_is_prepared_anew(from_folders, command):
    src, out = from_folders
    settings = ["classes=3", "size=8", "filter=box", "crop=none"]
    _, printed, _ = command("imagenet", f"src={src}", f"out={out}", *settings)
    assert "15 prepared now" in printed
    assert {Image.open(p).size for p in out.glob("*.png")} == {(8, 8)}
    assert "# filter: box" in (out / "files.txt").read_text()


def test_flat_folder_and_tar_with_the_devkit_give_the_same_set(from_folders, tmp_path, command):
    _, out = from_folders
    devkit = write_devkit(tmp_path / "ILSVRC2012_devkit_t12.tar.gz", truth(COUNT))
    flat = write_folder(tmp_path / "flat", validation(COUNT))
    tar = write_tar(tmp_path / "ILSVRC2012_img_val.tar", dict(reversed(validation(COUNT).items())))
    for src in (flat, tar):
        other = tmp_path / f"from-{src.name}"
        code, _, error = command(
            "imagenet", f"src={src}", f"labels={devkit}", f"out={other}", *SMALL
        )
        assert code == 0, error
        names = sorted(p.name for p in other.glob("*.png"))
        assert names == sorted(p.name for p in out.glob("*.png"))
        for name in names:
            assert np.array_equal(Image.open(other / name), Image.open(out / name))
        assert "# labels: ILSVRC2012_devkit_t12.tar.gz" in (other / "files.txt").read_text()


def test_a_flat_source_without_labels_is_refused(tmp_path, command):
    src = write_folder(tmp_path / "flat", validation(6))
    code, _, error = command("imagenet", f"src={src}", f"out={tmp_path / 'out'}", *SMALL)
    assert code == 1
    assert "labels=<ILSVRC2012 devkit archive>" in error
    assert not (tmp_path / "out").exists()


def test_counts_are_said(tmp_path, command):
    files = by_class()
    last = sorted(name for name in files if name.startswith("n02/"))
    for name in last[4:]:
        del files[name]
    src = write_folder(tmp_path / "few", files)
    code, _, error = command("imagenet", f"src={src}", f"out={tmp_path / 'out'}", *SMALL)
    assert code == 1
    assert "3 classes x 5 = 15 images are expected, found 14" in error
    assert "n02 has only 4" in error
    code, _, error = command("imagenet", f"src={src}", f"out={tmp_path / 'out'}", "per_class=4")
    assert code == 1
    assert "1000 classes x 4 = 4000 images are expected, found 12 in 3 classes" in error
    code, _, error = command("imagenet", f"src={src}", f"out={tmp_path / 'out'}")
    assert "1000 classes x 5 = 5000 images are expected, found 14 in 3 classes" in error


def test_4999_images_of_imagenet_are_refused():
    counts = {f"n{i:08d}": 50 for i in range(1000)}
    check_counts(counts, 1000, 5)
    with pytest.raises(PrepareError, match="5000 images are expected, found 4999 in 1000 classes"):
        check_counts({**counts, "n00000007": 4}, 1000, 5)
    with pytest.raises(PrepareError, match="5000 images are expected, found 5000 in 1001 classes"):
        check_counts({**counts, "n99999999": 0}, 1000, 5)


def test_labels_that_do_not_fit(tmp_path, command):
    flat = write_folder(tmp_path / "flat", validation(COUNT))
    arguments = ["imagenet", f"src={flat}", f"out={tmp_path / 'out'}", *SMALL]
    devkit = write_devkit(tmp_path / "more.tar.gz", truth(COUNT + 1))
    code, _, error = command(*arguments, f"labels={devkit}")
    assert code == 1
    assert "22 images are expected, as many as labels, found 21" in error
    (flat / "ILSVRC2012_val_00000003.JPEG").rename(flat / "ILSVRC2012_val_00000099.JPEG")
    devkit = write_devkit(tmp_path / "labels.tar.gz", truth(COUNT))
    code, _, error = command(*arguments, f"labels={devkit}")
    assert code == 1
    assert "ILSVRC2012_val_00000004.JPEG stands where image 3 is expected" in error
    code, _, error = command(*arguments, f"labels={flat}")
    assert code == 1
    assert "data/meta.mat" in error
    devkit = write_devkit(tmp_path / "group.tar.gz", [4] * COUNT)
    code, _, error = command(*arguments, f"labels={devkit}")
    assert code == 1
    assert "numbers of classes that data/meta.mat lists" in error


def test_a_broken_image_is_named_and_the_rest_kept(tmp_path, command):
    files = by_class()
    names = sorted(name for name in files if name.startswith("n03/"))
    files[names[2]] = files[names[2]][:300]
    src, out = write_folder(tmp_path / "val", files), tmp_path / "out"
    code, _, error = command("imagenet", f"src={src}", f"out={out}", *SMALL)
    assert code == 1
    assert f"val/{names[2]}: cannot be read as an image" in error
    assert not (out / "files.txt").exists()
    kept = {p: p.stat().st_mtime_ns for p in out.glob("*.png")}
    assert len(kept) == 12
    (src / names[2]).write_bytes(photograph(77))
    code, printed, _ = command("imagenet", f"src={src}", f"out={out}", *SMALL)
    assert code == 0
    assert f"{len(kept)} intact before" in printed
    assert kept.items() <= {p: p.stat().st_mtime_ns for p in out.glob("*.png")}.items()


def test_images_of_another_set_in_the_folder_are_refused(from_folders, command):
    src, out = from_folders
    arguments = ["imagenet", f"src={src}", f"out={out}", "classes=3", "size=16"]
    code, _, error = command(*arguments, "per_class=4")
    assert code == 1
    assert "images that are not of this set" in error
    assert len(list(out.glob("*.png"))) == 15


def test_the_command_as_a_user_types_it(tmp_path):
    src = write_folder(tmp_path / "val", by_class())
    done = subprocess.run(
        [sys.executable, "-m", "experiments.prepare", "imagenet", f"src={src}",
         f"out={tmp_path / 'out'}", "classes=3", "per_class=1", "size=original"],
        cwd=ROOT, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 images, 3 prepared now" in done.stdout
    assert "out: 100%" in done.stderr  # the progress bar
    assert {Image.open(p).size for p in (tmp_path / "out").glob("*.png")} == {(30, 30)}
