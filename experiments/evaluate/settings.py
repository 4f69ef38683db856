"""The config section `metrics`: its keys, their defaults and what is allowed.

names              list of fid, clip_score, fd_toy, clip_toy, psnr, ssim
inception_weights  file for torch-fidelity's Inception v3, or null: downloaded by it
clip_model         hub name or local folder of a CLIPModel, for clip_score
scorer             local folder of the toy world's CLIPModel, for fd_toy and clip_toy
reference          folder of photographs, for fid
reference_size     {crop: center | none, size: painted | original | pixels, filter: a PIL name}
reference_scenes   how many held-out toy scenes fd_toy compares with
reference_seed     which ones
batch_size         images in one pass through a network
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from experiments.config import ROOT, ConfigError

NAMES = ("fid", "clip_score", "fd_toy", "clip_toy", "psnr", "ssim")
CROPS = ("center", "none")
FILTERS = {f.name.lower(): f for f in Image.Resampling}
DEFAULTS = {
    "names": ["fid", "clip_score", "psnr", "ssim"],
    "inception_weights": None,
    "clip_model": "openai/clip-vit-large-patch14",
    "scorer": None,
    "reference": None,
    "reference_size": {"crop": "center", "size": "painted", "filter": "lanczos"},
    "reference_scenes": 2000,
    "reference_seed": 7919,
    "batch_size": 32,
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
    size = settings["reference_size"] or {}
    if not isinstance(size, dict):
        raise refuse("reference_size", size, "must have the keys crop, size, filter")
    _check_keys("reference_size.", size, DEFAULTS["reference_size"])
    settings["reference_size"] = size = {**DEFAULTS["reference_size"], **size}

    names = settings["names"]
    if not isinstance(names, (list, tuple)):
        raise refuse("names", names, f"must be a list of {', '.join(NAMES)}")
    for name in names:
        _check_choice("names", name, NAMES)
    settings["names"] = list(dict.fromkeys(names))
    for key, least in (("reference_scenes", 2), ("reference_seed", 0), ("batch_size", 1)):
        if not _is_integer(settings[key], least):
            raise refuse(key, settings[key], f"must be an integer >= {least}")
    size["crop"] = "none" if size["crop"] is None else size["crop"]  # YAML authors write null
    _check_choice("reference_size.crop", size["crop"], CROPS)
    _check_choice("reference_size.filter", size["filter"], FILTERS)
    if size["size"] not in ("painted", "original") and not _is_integer(size["size"], 1):
        raise refuse("reference_size.size", size["size"], "must be painted, original or pixels")

    if "fid" in names:
        settings["reference"] = _existing("reference", settings["reference"], "a folder of images")
        if not settings["reference"].is_dir() or not list_images(settings["reference"]):
            allowed = f"must be a folder with {' '.join(IMAGE_SUFFIXES)} files"
            raise refuse("reference", settings["reference"], allowed)
        if settings["inception_weights"] is not None:
            path = _existing("inception_weights", settings["inception_weights"], "a file, or null")
            if not path.is_file():
                raise refuse("inception_weights", path, "must be a file, or null")
            settings["inception_weights"] = path
    if "clip_score" in names:
        name = settings["clip_model"]
        if not name or not isinstance(name, (str, Path)):
            raise refuse("clip_model", name, "must be a hub name or a folder of a CLIPModel")
        local = find(name)
        if local is not None:
            settings["clip_model"] = local
        elif Path(name).is_absolute() or str(name).startswith(".") or str(name).count("/") > 1:
            raise refuse("clip_model", name, "no such folder")
    if "fd_toy" in names or "clip_toy" in names:
        folder = _existing("scorer", settings["scorer"], "the folder of the toy world's CLIPModel")
        if not (folder / "config.json").is_file():
            raise refuse("scorer", folder, "must be a folder of a CLIPModel, with config.json")
        settings["scorer"] = folder
    return settings


def find(path: str | Path) -> Path | None:
    """`path` from the working directory or else from the checkout, if it exists."""
    for candidate in (Path(path).expanduser(), ROOT / path):
        if candidate.exists():
            return candidate
    return None


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
