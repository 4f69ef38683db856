import numpy as np
import pytest
from PIL import Image

from experiments.evaluate.images import prepare_reference, read_image


@pytest.fixture
def picture(textured):
    return Image.fromarray(textured(1, 51, size=40)[0])


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "1", "LA", "RGBA"])
def test_any_mode_becomes_rgb(tmp_path, picture, mode):
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    picture.convert(mode).save(path)
    image = read_image(path)
    assert image.mode == "RGB"
    assert image.size == (40, 40)
    assert np.asarray(image).std() > 10


def test_16_bit_keeps_its_upper_byte_and_transparency_lies_on_white(tmp_path):
    grey = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    Image.fromarray(grey).save(tmp_path / "deep.png")
    assert (np.asarray(read_image(tmp_path / "deep.png"))[..., 0].ravel() == np.arange(256)).all()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (np.asarray(read_image(tmp_path / "clear.png")) == 255).all()


def test_exif_orientation_is_applied(tmp_path, picture):
    wide = picture.crop((0, 0, 40, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    wide.save(tmp_path / "turned.png", exif=exif)
    image = read_image(tmp_path / "turned.png")
    assert image.size == (20, 40)
    assert (np.asarray(image) == np.asarray(wide.transpose(Image.Transpose.ROTATE_270))).all()


@pytest.mark.parametrize("cut", [0, 60, 0.5])
def test_a_truncated_or_empty_file_is_named(tmp_path, picture, cut):
    path = tmp_path / "cut.png"
    picture.save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(cut * len(data)) if cut == 0.5 else cut])
    with pytest.raises(ValueError, match=r"cut.png: cannot be read as an image"):
        read_image(path)


def test_centre_crop_keeps_the_middle_and_none_distorts():
    bars = np.zeros((20, 60, 3), np.uint8)
    bars[:, 20:40] = 200
    image = Image.fromarray(bars)
    cropped = np.asarray(prepare_reference(image, (10, 10), "center", "painted", "box"))
    assert (cropped == 200).all()
    whole = np.asarray(prepare_reference(image, (12, 4), "none", "painted", "box"))
    assert whole[0, :, 0].tolist() == [0] * 4 + [200] * 4 + [0] * 4


def test_sizes_and_filters_are_what_was_asked_for(textured):
    image = Image.fromarray(textured(1, 52, size=60)[0]).crop((0, 0, 60, 45))
    assert prepare_reference(image, (32, 32), "center", "original", "box").size == (45, 45)
    assert prepare_reference(image, (32, 32), "center", 24, "box").size == (24, 24)
    assert prepare_reference(image, (32, 16), "center", "painted", "box").size == (32, 16)
    expected = image.crop((7, 0, 52, 45)).resize((30, 30), Image.Resampling.BICUBIC)
    found = prepare_reference(image, (30, 30), "center", "painted", "bicubic")
    assert (np.asarray(found) == np.asarray(expected)).all()
