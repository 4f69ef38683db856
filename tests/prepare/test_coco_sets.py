"""COCO's validation photographs, checked against the captions' own list."""

import zipfile

import pytest
from PIL import Image
from prepare_sets import photograph, write_captions, write_folder, write_tar

from experiments.setup import coco
from experiments.setup.sources import PrepareError

NAMES = [f"{i:012d}.jpg" for i in (724, 139, 285, 632)]
SMALL = ("split=2017", "expect=4", "size=16")


@pytest.fixture
def files():
    return {f"val2017/{name}": photograph(i) for i, name in enumerate(NAMES)}


@pytest.fixture
def captions(tmp_path):
    return write_captions(tmp_path / "captions_val2017.json", NAMES)


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
def test_every_layout(tmp_path, files, captions, command, kind):
    if kind == "folder":
        src = write_folder(tmp_path / "photographs", files) / "val2017"
    elif kind == "zip":
        src = write_zip(tmp_path / "val2017.zip", files)
    else:
        src = write_tar(tmp_path / "val2017.tar.gz", files, "w:gz")
    out = tmp_path / "out"
    arguments = ["coco", f"src={src}", f"captions={captions}", f"out={out}", *SMALL]
    code, printed, error = command(*arguments)
    assert code == 0, error
    assert "4 images, 4 prepared now" in printed
    assert [p.stem for p in sorted(out.glob("*.png"))] == sorted(n[:-4] for n in NAMES)
    assert {Image.open(p).size for p in out.glob("*.png")} == {(16, 16)}
    text = (out / "files.txt").read_text()
    assert "# split: val2017" in text
    assert "# captions: captions_val2017.json (SHA-256 " in text
    assert "4 intact before" in command(*arguments)[1]


def test_what_json_and_photographs_do_not_share_is_named(tmp_path, files, captions, command):
    del files[f"val2017/{NAMES[0]}"]
    files["val2017/000000999999.jpg"] = photograph(9)
    src = write_zip(tmp_path / "val2017.zip", files)
    code, _, error = command(
        "coco", f"src={src}", f"captions={captions}", f"out={tmp_path / 'out'}", *SMALL
    )
    assert code == 1
    assert f"{NAMES[0]} of captions' images missing" in error
    assert "000000999999.jpg not among captions' images" in error
    assert not (tmp_path / "out").exists()


def test_counts_of_the_true_splits(tmp_path, command):
    assert coco.COUNTS == {2014: 40504, 2017: 5000}
    for split, count in coco.COUNTS.items():
        names = [f"{i:012d}.jpg" for i in range(count - 1)]
        captions = write_captions(tmp_path / f"captions_val{split}.json", names)
        src = write_folder(tmp_path / f"val{split}", {"1.jpg": b""})
        code, _, error = command(
            "coco", f"split={split}", f"src={src}", f"captions={captions}",
            f"out={tmp_path / 'out'}",
        )  # fmt: skip
        assert code == 1
        assert f"{count} images are expected, found {count - 1}" in error


def test_4999_photographs_are_refused(tmp_path):
    """Whole JSON, one photograph too few."""
    names = [f"{i:012d}.jpg" for i in range(5000)]
    captions = write_captions(tmp_path / "captions_val2017.json", names)
    sizes = dict.fromkeys(names, 1)
    chosen, _ = coco.choose(coco.Source("val2017", sizes, None), captions, 5000)
    assert len(chosen) == 5000
    del sizes[names[17]]
    with pytest.raises(PrepareError, match="5000 images are expected, found 4999: 000000000017"):
        coco.choose(coco.Source("val2017", sizes, None), captions, 5000)
