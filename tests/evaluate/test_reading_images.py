import io

import numpy as np
import pytest
from PIL import Image

from experiments.metrics.images import (
    Preparation,
    load_images,
    painted_preparation,
    read_image,
    reference_preparation,
)


@pytest.fixture
def picture(textured):
    return Image.fromarray(textured(1, 51, size=40)[0])


def photograph(painted, crop="center", size="painted", filter="box"):
    return reference_preparation({"crop": crop, "size": size, "filter": filter}, painted)


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
    assert (np.asarray(photograph((10, 10))(image)) == 200).all()
    whole = np.asarray(photograph((12, 4), crop="none")(image))
    assert whole[0, :, 0].tolist() == [0] * 4 + [200] * 4 + [0] * 4


def test_sizes_and_filters_are_what_was_asked_for(textured):
    image = Image.fromarray(textured(1, 52, size=60)[0]).crop((0, 0, 60, 45))
    assert photograph((32, 32), size="original")(image).size == (45, 45)
    assert photograph((32, 32), size=24)(image).size == (24, 24)
    assert photograph((32, 16))(image).size == (32, 16)
    expected = image.crop((7, 0, 52, 45)).resize((30, 30), Image.Resampling.BICUBIC)
    found = photograph((30, 30), filter="bicubic")(image)
    assert (np.asarray(found) == np.asarray(expected)).all()


def test_painted_images_are_left_alone_or_resized_and_saved_as_jpeg(picture):
    how = {"format": "png", "quality": None, "size": "original", "filter": "lanczos"}
    nothing = painted_preparation(how)
    assert nothing(picture) is picture
    assert nothing.id == ""
    jpeg = painted_preparation({**how, "format": "jpeg", "quality": 30, "size": 20})
    small = picture.resize((20, 20), Image.Resampling.LANCZOS)
    small.save(written := io.BytesIO(), format="JPEG", quality=30)
    expected = np.asarray(Image.open(written))
    assert (np.asarray(jpeg(picture)) == expected).all()
    assert (expected != np.asarray(small)).any()
    assert jpeg.described == (
        "not cropped, resized to 20 x 20 with PIL's lanczos filter, saved as JPEG of quality 30 "
        "and read back"
    )


def test_what_is_done_to_an_image_names_its_features():
    chosen = [
        Preparation(),
        Preparation(crop=(1, 1)),
        Preparation(size=(20, 20)),
        Preparation(size=(20, 20), filter="box"),
        Preparation(jpeg=75),
        Preparation(jpeg=95),
    ]
    assert len({one.id for one in chosen}) == len(chosen)
    assert Preparation(filter="box").id == Preparation().id == ""  # nothing is resized


@pytest.mark.parametrize("workers", [0, 2])
def test_worker_processes_decode_the_same_in_order_and_name_a_broken_file(
    tmp_path, textured, workers
):
    paths = []
    for i, picture in enumerate(textured(7, 53, size=24)):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(picture).save(paths[-1])
    half = Preparation(size=(12, 12))
    batches = list(load_images(paths, half, 3, workers))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    found = [np.asarray(image) for batch in batches for image in batch]
    for image, path in zip(found, paths, strict=True):
        assert (image == np.asarray(half(read_image(path)))).all()
    paths[4].write_text("no picture")
    with pytest.raises(ValueError, match=r"^\S*4.png: cannot be read as an image") as caught:
        list(load_images(paths, half, 3, workers))
    assert "\n" not in str(caught.value)
