"""PNG files read without decoding: the text as PIL wrote it, damage noticed."""

import io

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from experiments.painting.png import is_whole, read_text


@pytest.fixture
def content():
    info = PngInfo()
    info.add_itxt("other", "no")
    info.add_itxt("catome", '{"prompt": "drei Äpfel, 三个苹果"}')
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG", pnginfo=info)
    return file.getvalue()


def test_the_text_as_it_was_written(content):
    assert read_text(io.BytesIO(content), "catome") == '{"prompt": "drei Äpfel, 三个苹果"}'
    assert read_text(io.BytesIO(content), "other") == "no"


def test_what_is_not_there_or_damaged(content):
    with pytest.raises(KeyError):
        read_text(io.BytesIO(content), "third")
    begin = content.index(b"catome")
    with pytest.raises(ValueError, match="damaged"):
        read_text(io.BytesIO(content.replace(b"prompt", b"Prompt")), "catome")
    for end in (0, 7, 9, begin - 6, begin, begin + 20):
        with pytest.raises(ValueError, match=r"not a PNG|damaged|not whole"):
            read_text(io.BytesIO(content[:end]), "catome")


def test_whole(content):
    assert is_whole(io.BytesIO(content), len(content))
    assert not is_whole(io.BytesIO(content[:-1]), len(content) - 1)
    assert not is_whole(io.BytesIO(content[:-8] + bytes(8)), len(content))
