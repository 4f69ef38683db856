"""A machine looked at before a run: what is there, what is missing, and the remedy."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from omegaconf import DictConfig, OmegaConf

from experiments.accelerators.build import build_method
from experiments.common.errors import ConfigError, kind_and_line
from experiments.common.paths import find, locate
from experiments.metrics.registry import FILES, MODELS, TO_REFERENCE
from experiments.metrics.sources import cached, weight_urls
from experiments.models import pipelines
from experiments.models.device import device
from experiments.painting import pipeline_call
from experiments.painting.prompts import WARMUP_PROMPTS, warmup
from experiments.runner.validation import validate
from experiments.settings.folders import results_root

OFFLINE = "HF_HUB_OFFLINE"
LEAST_GB = 5.0  # of free space: some thousands of images and their features


@dataclass(frozen=True)
class Finding:
    """One line: `remedy` is given where the check failed."""

    what: str
    told: str
    remedy: str | None = None

    def __str__(self) -> str:
        line = f"{'ok  ' if self.remedy is None else 'FAIL'} {self.what}: {self.told}"
        return line if self.remedy is None else f"{line}; {self.remedy}"


def examine(cfg: DictConfig) -> Iterator[Finding]:
    """All checks in order, each finding as soon as it is known."""
    OmegaConf.set_struct(cfg, False)
    for check in CHECKS:
        yield from check(cfg)


def check_torch(cfg: DictConfig) -> Iterator[Finding]:
    """The driver against the wheel, and the device's architecture against the wheel's."""
    built = torch.version.cuda or "no CUDA"
    if not torch.cuda.is_available():
        wanted = str(cfg.device).startswith("cuda")
        remedy = "install the driver, or a wheel for the one there is: make install TORCH_INDEX=..."
        yield Finding(
            "device", f"torch {torch.__version__} for {built}, no CUDA device",
            remedy if wanted else None,
        )  # fmt: skip
        return
    known = torch.cuda.get_arch_list()
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        name, own = torch.cuda.get_device_name(index), f"sm_{major}{minor}"
        # Code for a lower minor version of the same generation runs too.
        runs = any(arch.startswith(f"sm_{major}") and arch <= own for arch in known)
        remedy = None if runs else (
            f"this wheel has {' '.join(known)}; install an older one: make install TORCH_INDEX=..."
        )  # fmt: skip
        yield Finding(f"device cuda:{index}", f"{name}, {own}, torch for CUDA {built}", remedy)


def check_settings(cfg: DictConfig) -> Iterator[Finding]:
    """The configuration, as `run.py` would check it."""
    try:
        validate(cfg)
    except ConfigError as error:
        yield Finding("settings", str(error), "see python run.py --help")
    else:
        yield Finding("settings", f"benchmark {cfg.benchmark.name}, method {cfg.method.name}")


def check_model(cfg: DictConfig) -> Iterator[Finding]:
    path = locate(str(cfg.model.path))
    yield hub_finding("model", path, cfg.model.revision, "model.path")


def hub_finding(what: str, path: str, revision: str | None, key: str) -> Finding:
    """Whether a model lies in a folder or in the hub's cache."""
    if Path(path).is_dir():
        return Finding(what, f"folder {path}")
    if pipelines.is_local(path):
        return Finding(what, f"{path} does not exist", f"give {key}=<folder>")
    try:
        folder = snapshot_download(path, revision=revision, local_files_only=True)
    except LocalEntryNotFoundError:
        remedy = f"python -m experiments.prefetch, or {key}=<folder>"
        return Finding(what, f"{path} is not in the hub's cache", remedy)
    return Finding(what, f"{path} in {folder}")


def check_metrics(cfg: DictConfig) -> Iterator[Finding]:
    """The weights that the metrics use: given files, models, or what libraries downloaded."""
    names, urls = set(cfg.metrics.names), weight_urls(cfg.metrics.lpips_net)
    for key, users in FILES.items():
        if not names & set(users):
            continue
        given = cfg.metrics[key]
        path = cached(urls[key]) if given is None else Path(locate(str(given)))
        remedy = f"python -m experiments.prefetch, or metrics.{key}=<file>"
        there = path.is_file()
        told = str(path) if there else f"{path} does not exist"
        yield Finding(f"weights {key}", told, None if there else remedy)
    for key, (user, _) in MODELS.items():
        if user in names:
            local = find(cfg.metrics[key])
            path = str(local or cfg.metrics[key])
            yield hub_finding(f"weights {key}", path, None, f"metrics.{key}")


def check_data(cfg: DictConfig) -> Iterator[Finding]:
    remedy = f"python -m experiments.prepare, or data=<folder> (it is {cfg.data})"
    if cfg.prompts.path is not None:
        there = find(cfg.prompts.path) is not None
        told = cfg.prompts.path if there else f"{cfg.prompts.path} does not exist"
        yield Finding("prompts", told, None if there else remedy)
    if set(cfg.metrics.names) & {*TO_REFERENCE}:
        reference = cfg.metrics.reference
        there = reference is not None and find(reference) is not None
        told = str(reference) if there else f"metrics.reference={reference} does not exist"
        yield Finding("reference", told, None if there else remedy)


def check_hub(cfg: DictConfig) -> Iterator[Finding]:
    offline = os.environ.get(OFFLINE, "").upper() in ("1", "ON", "YES", "TRUE")
    yield Finding("hub", f"{OFFLINE} is {'on: nothing is downloaded' if offline else 'off'}")


def check_space(cfg: DictConfig) -> Iterator[Finding]:
    """Free space and write rights where results go."""
    folder = results_root(cfg).absolute()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free / 1e9
    remedy = None if free >= LEAST_GB else f"less than {LEAST_GB:g} GB; give results=<folder>"
    yield Finding("space", f"{free:,.0f} GB free under {existing}", remedy)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield Finding("results", f"{existing}: {error.strerror}", "give results=<folder>")
    else:
        yield Finding("results", f"{folder} can be written")


def check_image(cfg: DictConfig) -> Iterator[Finding]:
    """One image at two steps through the whole path; black or constant is a failure."""
    short = OmegaConf.merge(cfg, {"generation": {"steps": 2}})
    try:
        device(short)
        pipe, method = pipelines.load(short), build_method(short)
        prompt = warmup(cfg.prompts.kind, len(WARMUP_PROMPTS))[0]
        with method.attach(pipe):
            (image,) = pipeline_call.generate(pipe, short, [prompt])
    except (ConfigError, RuntimeError, OSError) as error:
        told = kind_and_line(error)
        yield Finding("image", told, "the lines above say what is missing")
        return
    size = f"{short.generation.width} x {short.generation.height}"
    good = image is not None and np.asarray(image).std() > 1
    remedy = None if good else "it is not finite or all alike; try dtype=float32"
    yield Finding("image", f"{size} painted in 2 steps", remedy)


CHECKS = (
    check_torch, check_settings, check_hub, check_space, check_model, check_metrics, check_data,
    check_image,
)  # fmt: skip
