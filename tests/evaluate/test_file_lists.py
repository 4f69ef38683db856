import hashlib

import pytest

from experiments.metrics.file_list import read_file_list


def listed(folder, names):
    lines = []
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    return lines


def test_header_names_and_hashes_are_read(tmp_path):
    lines = listed(tmp_path, ["a.png", "deeper/b c.jpg"])
    path = tmp_path / "set.txt"
    path.write_text("# source: COCO val2017\n#filter:  bicubic\n\n" + "".join(lines))
    found = read_file_list(path)
    assert found.header == {"source": "COCO val2017", "filter": "bicubic"}
    assert found.names == ["a.png", "deeper/b c.jpg"]
    assert found.paths == [tmp_path / "a.png", tmp_path / "deeper/b c.jpg"]
    assert found.sha256[0] == hashlib.sha256(b"a.png").hexdigest()


def test_the_root_may_be_another_folder(tmp_path):
    lines = listed(tmp_path / "elsewhere", ["a.png"])
    path = tmp_path / "lists" / "set.txt"
    path.parent.mkdir()
    for root in ("../elsewhere", tmp_path / "elsewhere"):
        path.write_text(f"# root: {root}\n" + "".join(lines))
        assert read_file_list(path).paths[0].read_bytes() == b"a.png"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abc  a.png\n", "line 1 is not"),
        (f"{'0' * 64} a.png\n", "line 1 is not"),
        (f"# k: v\n{'0' * 64}  \n", "line 2 is not"),
        (f"{'G' * 64}  a.png\n", "line 1 is not"),
        (f"{'0' * 64}  none.png\n", r"1 of its 1 files are missing: .*none.png"),
        (b"\x89PNG\xff", "is no list of files"),
    ],
)
def test_what_is_no_list_is_refused(tmp_path, text, reason):
    path = tmp_path / "set.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=reason):
        read_file_list(path)
