"""Small sets laid out as ImageNet's and COCO's are: three classes, a few tiny photographs."""

import io
import json
import tarfile

import numpy as np
from PIL import Image
from scipy.io import savemat

WNIDS = ("n03", "n01", "n02")  # not in order: ids 1, 2, 3 of the devkit
GROUP = "n00"  # a synset with children


def photograph(seed: int, width: int = 40, height: int = 30) -> bytes:
    """A JPEG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, format="JPEG", quality=90)
    return written.getvalue()


def validation(count: int) -> dict[str, bytes]:
    """{official name: photograph} of `count` validation images."""
    return {f"ILSVRC2012_val_{i + 1:08d}.JPEG": photograph(i) for i in range(count)}


def truth(count: int) -> list[int]:
    """ILSVRC2012_ID of each: the three classes in turns, not sorted."""
    return [(2 * i) % 3 + 1 for i in range(count)]


def write_folder(folder, files: dict[str, bytes]):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_tar(path, files: dict[str, bytes], mode: str = "w"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_devkit(path, ids: list[int]):
    """The devkit's two files, meta.mat with its fields, in a tar.gz."""
    kind = [(name, object) for name in ("ILSVRC2012_ID", "WNID", "words", "num_children")]
    rows = [(i + 1, wnid, f"{wnid}, words", 0) for i, wnid in enumerate(WNIDS)]
    rows.append((4, GROUP, "a group", 3))
    synsets = np.array(rows, dtype=kind).reshape(-1, 1)
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets})
    top = "ILSVRC2012_devkit_t12/data"
    return write_tar(
        path,
        {
            f"{top}/ILSVRC2012_validation_ground_truth.txt": "\n".join(map(str, ids)).encode(),
            f"{top}/meta.mat": meta.getvalue(),
        },
        "w:gz",
    )


def write_captions(path, names):
    images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
    path.write_text(json.dumps({"images": images, "annotations": []}))
    return path
