"""Settings and archives that are refused, each in one line that names what is wrong."""

import io
import stat
import tarfile
import zipfile

import pytest
from prepare_sets import photograph, write_folder, write_tar

from experiments.prepare import CROPS, FILTERS
from experiments.setup.sources import SUFFIXES

BAD = {
    "imagenet22k": ["imagenet22k: must be one of imagenet, coco"],
    "imagenet out=o": ["src=null", "folder, a tar or a zip"],
    "imagenet src=/nowhere out=o": ["src=/nowhere", "no such folder or file"],
    "imagenet src=. ": ["out=null", "must be given"],
    "imagenet src=. out=./below": ["out=./below", "lies in src"],
    "imagenet src=. out=o crop=middle": ["crop=middle", "center, none"],
    "imagenet src=. out=o filter=cubic": ["filter=cubic", "bicubic"],
    "imagenet src=. out=o size=0": ["size=0", "original or an integer >= 1"],
    "imagenet src=. out=o size=painted": ["size=painted", "original or an integer >= 1"],
    "imagenet src=. out=o per_class=0": ["per_class=0", "integer >= 1"],
    "imagenet src=. out=o classes=some": ["classes=some", "integer >= 1"],
    "imagenet src=. out=o sise=3": ["sise=3: unknown key", "size"],
    "imagenet src out=o": ["src=null", "must be given"],
    "imagenet src=[ out=o": ["src=[ out=o"],
    "coco src=. out=o": ["split=null", "2014 or 2017"],
    "coco src=. out=o split=2015": ["split=2015", "2014 or 2017"],
    "coco src=. out=/o split=2017": ["captions=null", "must be given"],
    "coco src=. out=/o split=2017 captions=/nowhere.json": ["captions=/nowhere.json", "no such"],
}


@pytest.mark.parametrize("arguments", BAD)
def test_settings(command, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = command(*arguments.split())
    assert code == 1
    for part in BAD[arguments]:
        assert part in error


def test_same_choices_as_the_metrics():
    from experiments.metrics import settings

    assert CROPS == settings.CROPS
    assert set(FILTERS) == set(settings.FILTERS)
    assert SUFFIXES == settings.IMAGE_SUFFIXES


@pytest.fixture
def refused(command, tmp_path):
    """The error about an archive, with nothing written anywhere."""

    def call(archive) -> str:
        before = sorted(tmp_path.parent.rglob("*"))
        code, _, error = command(
            "imagenet", f"src={archive}", f"out={tmp_path / 'out'}", "classes=1", "per_class=1"
        )
        assert code == 1
        assert sorted(tmp_path.parent.rglob("*")) == before
        return error

    return call


@pytest.mark.parametrize("name", ["../evil.jpg", "/evil.jpg", "a/../../evil.jpg", "..\\evil.jpg"])
def test_names_that_leave_the_archive(tmp_path, refused, name):
    tar = write_tar(tmp_path / "a.tar", {"n01/good.jpg": photograph(1), name: photograph(2)})
    assert "evil.jpg, a name that leaves the archive's folder" in refused(tar)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("n01/good.jpg", photograph(1))
        archive.writestr(name, photograph(2))
    assert "evil.jpg, a name that leaves the archive's folder" in refused(tmp_path / "a.zip")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar(tmp_path, refused, kind):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("n01/1.jpg")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    assert "n01/1.jpg, a link or a device" in refused(tmp_path / "a.tar")


def test_links_in_a_zip(tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        member = zipfile.ZipInfo("n01/1.jpg")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    assert "n01/1.jpg, a link" in refused(tmp_path / "a.zip")


def test_archives_that_are_none_or_cut_off(tmp_path, refused):
    (tmp_path / "text.tar").write_text("no archive")
    assert "text.tar: must be a folder, a tar or a zip" in refused(tmp_path / "text.tar")
    whole = write_tar(tmp_path / "whole.tgz", {"n01/1.jpg": photograph(1, 300, 300)}, "w:gz")
    content = whole.read_bytes()
    (tmp_path / "cut.tgz").write_bytes(content[: len(content) // 2])
    assert "cut.tgz: cannot be read to its end" in refused(tmp_path / "cut.tgz")
    damaged = io.BytesIO()
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("n01/1.jpg", photograph(1))
    spoiled = bytearray(damaged.getvalue())
    spoiled[200:260] = bytes(60)
    (tmp_path / "spoiled.zip").write_bytes(spoiled)
    command_error = refused_after_start(tmp_path)
    assert "spoiled.zip: cannot be read to its end" in command_error


def refused_after_start(tmp_path) -> str:
    """The archive lists well; its member does not read well."""
    from experiments.setup.sources import PrepareError, open_source

    with (
        open_source("src", tmp_path / "spoiled.zip") as source,
        pytest.raises(PrepareError) as caught,
    ):
        source.read("n01/1.jpg")
    return str(caught.value)


def test_hidden_files_and_other_files_are_no_images(tmp_path, command):
    files = {f"n01/{i}.jpg": photograph(i) for i in range(3)}
    files |= {"n01/._1.jpg": b"x", "__MACOSX/n01/1.jpg": b"x", "n01/readme.txt": b"x"}
    src = write_folder(tmp_path / "val", {k: v for k, v in files.items() if "MACOSX" not in k})
    for source in (src, write_tar(tmp_path / "val.tar", files)):
        out = tmp_path / f"out-{source.name}"
        code, printed, error = command(
            "imagenet", f"src={source}", f"out={out}", "classes=1", "per_class=3", "size=8"
        )
        assert code == 0, error
        assert "3 images, 3 prepared now" in printed
