"""The config section `metrics`: its keys, their defaults and what is allowed.

names                list of the metrics in `registry.METRICS`
inception_weights    file for torch-fidelity's Inception v3, or null: downloaded by it
pytorch_fid_weights  file for pytorch-fid's Inception v3, or null: downloaded
prc_network          vgg16 (the published one) or inception: features of precision and recall
vgg16_weights        file of torchvision's weights for it, or null: downloaded
clip_model           hub name or local folder of a CLIPModel, for clip_score
clip_scaling         cosine100: 100·cos, hessel: 2.5·max(cos, 0)
fd_clip_model        hub name or local folder of a CLIPModel, for fd_clip
dinov2_model         hub name or local folder of a Dinov2Model, for fd_dinov2
lpips_net            alex, vgg or squeeze
lpips_backbone       file of torchvision's weights for it, or null: downloaded
kid_subset_size      images in one of KID's random subsets
kid_subsets          how many of them
scorer               local folder of the toy world's CLIPModel, for fd_toy and clip_toy
reference            folder of photographs, list of files, or .npz statistics of pytorch-fid
reference_size       {crop: center | none, size: painted | original | pixels, filter: a PIL name}
reference_scenes     how many held-out toy scenes fd_toy compares with
reference_seed       which ones
painted              what happens to painted images before features: {format: png | jpeg, quality:
                     1 to 100 of the JPEG or null: 75, size: original | pixels, filter}
batch_size           images in one pass through a network
workers              processes that decode images, 0: none, null: as many as pay
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from experiments.common.errors import ConfigError
from experiments.common.paths import find
from experiments.metrics.file_list import read_file_list
from experiments.metrics.registry import FILES, METRICS, MODELS
from experiments.metrics.statistics import read_statistics

CROPS = ("center", "none")


FORMATS = ("png", "jpeg")


SCALINGS = ("cosine100", "hessel")


LPIPS_NETS = ("alex", "vgg", "squeeze")


PRC_NETWORKS = ("vgg16", "inception")


FILTERS = {f.name.lower(): f for f in Image.Resampling}


DEFAULTS = {
    "names": ["fid", "clip_score", "psnr", "ssim"],
    "inception_weights": None,
    "pytorch_fid_weights": None,
    "prc_network": "vgg16",
    "vgg16_weights": None,
    "clip_model": "openai/clip-vit-large-patch14",
    "clip_scaling": "cosine100",
    "fd_clip_model": "openai/clip-vit-base-patch32",
    "dinov2_model": "facebook/dinov2-large",
    "lpips_net": "alex",
    "lpips_backbone": None,
    "kid_subset_size": 1000,
    "kid_subsets": 100,
    "scorer": None,
    "reference": None,
    "reference_size": {"crop": "center", "size": "painted", "filter": "lanczos"},
    "reference_scenes": 2000,
    "reference_seed": 7919,
    "painted": {"format": "png", "quality": None, "size": "original", "filter": "lanczos"},
    "batch_size": 32,
    "workers": None,
}


LEAST = {  # of whole numbers
    "reference_scenes": 2,
    "reference_seed": 0,
    "batch_size": 1,
    "kid_subset_size": 2,
    "kid_subsets": 1,
}


IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def refuse(key: str, value: Any, allowed: str) -> ConfigError:
    value = "null" if value is None else value
    return ConfigError(f"metrics.{key}={value}: {allowed}")


def check_metrics(metrics: dict) -> dict:
    """Fill in defaults and check every key, without loading a model or using the network.

    Args:
        metrics: the resolved config section `metrics`.

    Returns:
        A new dict with all keys of `DEFAULTS`; existing local paths are made `Path`s.

    Raises:
        ConfigError: one line that names the key, its value and what is allowed.
    """
    _check_keys("", metrics, DEFAULTS)
    settings = {**DEFAULTS, **metrics}
    for section in ("reference_size", "painted"):
        settings[section] = _section(section, settings[section])
    names = settings["names"]
    if not isinstance(names, (list, tuple)):
        raise refuse("names", names, f"must be a list of {', '.join(METRICS)}")
    for name in names:
        _check_choice("names", name, METRICS)
    names = settings["names"] = list(dict.fromkeys(names))

    for key, least in LEAST.items():
        if not _is_integer(settings[key], least):
            raise refuse(key, settings[key], f"must be an integer >= {least}")
    if settings["workers"] is not None and not _is_integer(settings["workers"], 0):
        raise refuse("workers", settings["workers"], "must be an integer >= 0, or null")
    _check_choice("clip_scaling", settings["clip_scaling"], SCALINGS)
    _check_choice("lpips_net", settings["lpips_net"], LPIPS_NETS)
    _check_choice("prc_network", settings["prc_network"], PRC_NETWORKS)
    _check_reference_size(settings["reference_size"])
    _check_painted(settings["painted"])

    wanted = [name for name in names if METRICS[name].reference]
    if wanted:
        settings["reference"] = _check_reference(settings["reference"], wanted)
    for key, users in FILES.items():
        if settings[key] is not None and set(users) & set(names):
            settings[key] = path = _existing(key, settings[key], "a file, or null")
            if not path.is_file():
                raise refuse(key, path, "must be a file, or null")
    for key, (user, kind) in MODELS.items():
        if user in names:
            settings[key] = _check_model(key, settings[key], kind)
    if any(METRICS[name].scorer for name in names):
        folder = _existing("scorer", settings["scorer"], "the folder of the toy world's CLIPModel")
        if not (folder / "config.json").is_file():
            raise refuse("scorer", folder, "must be a folder of a CLIPModel, with config.json")
        settings["scorer"] = folder
    return settings


def _section(section: str, given: Any) -> dict:
    given, known = given or {}, DEFAULTS[section]
    if not isinstance(given, dict):
        raise refuse(section, given, f"must have the keys {', '.join(known)}")
    _check_keys(f"{section}.", given, known)
    return {**known, **given}


def _check_reference_size(size: dict) -> None:
    size["crop"] = "none" if size["crop"] is None else size["crop"]  # YAML authors write null
    _check_choice("reference_size.crop", size["crop"], CROPS)
    _check_choice("reference_size.filter", size["filter"], FILTERS)
    if size["size"] not in ("painted", "original") and not _is_integer(size["size"], 1):
        raise refuse("reference_size.size", size["size"], "must be painted, original or pixels")


def _check_painted(how: dict) -> None:
    _check_choice("painted.format", how["format"], FORMATS)
    _check_choice("painted.filter", how["filter"], FILTERS)
    if how["size"] != "original" and not _is_integer(how["size"], 1):
        raise refuse("painted.size", how["size"], "must be original or pixels")
    quality = how["quality"]
    if how["format"] == "png":
        if quality is not None:
            raise refuse("painted.quality", quality, "must be null where painted.format is png")
    elif quality is not None and not (_is_integer(quality, 1) and quality <= 100):
        raise refuse("painted.quality", quality, "must be an integer from 1 to 100, or null: 75")


def _check_reference(value: Any, names: list[str]) -> Path:
    path = _existing("reference", value, "a folder of images, a list of files or .npz statistics")
    try:
        if path.is_dir():
            if not list_images(path):
                raise ValueError(f"must be a folder with {' '.join(IMAGE_SUFFIXES)} files")
        elif path.suffix.lower() == ".npz":
            read_statistics(path)
            lost = [name for name in names if METRICS[name].reference == "images"]
            if lost:
                raise ValueError(f"{', '.join(lost)} need images, statistics do not suffice")
        elif not read_file_list(path).paths:
            raise ValueError("lists no image")
    except ValueError as error:
        raise refuse("reference", path, str(error)) from error
    return path


def _check_model(key: str, name: Any, kind: str) -> str | Path:
    if not name or not isinstance(name, (str, Path)):
        raise refuse(key, name, f"must be a hub name or a folder of a {kind}")
    local = find(name)
    if local is not None:
        return local
    if Path(name).is_absolute() or str(name).startswith(".") or str(name).count("/") > 1:
        raise refuse(key, name, "no such folder")
    return name


def list_images(folder: Path) -> list[Path]:
    """The PNG, JPEG and WebP files under `folder`, hidden ones left out, in order of path."""
    found = (p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    visible = (p for p in found if not any(q.startswith(".") for q in p.relative_to(folder).parts))
    return sorted((p for p in visible if p.is_file()), key=lambda p: p.relative_to(folder).parts)


def _existing(key: str, value: Any, what: str) -> Path:
    if value is None or value == "":
        raise refuse(key, value, f"must be {what} (or leave out what needs it in metrics.names)")
    path = find(value)
    if path is None:
        raise refuse(key, value, f"does not exist; must be {what}")
    return path


def _check_keys(prefix: str, given: dict, known: dict) -> None:
    for key, value in given.items():
        if key not in known:
            raise refuse(f"{prefix}{key}", value, f"unknown key; known are {', '.join(known)}")


def _check_choice(key: str, value: Any, choices: Iterable[str]) -> None:
    if value not in choices:
        raise refuse(key, value, f"must be one of {', '.join(choices)}")


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
