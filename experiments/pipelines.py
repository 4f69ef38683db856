"""Diffusers pipelines as a configuration describes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import transformers
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    PNDMScheduler,
    SchedulerMixin,
    StableDiffusionPipeline,
)
from omegaconf import DictConfig
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.config import DTYPES, bad, device, locate
from experiments.store import Prompt, digest

SCHEDULER_CLASSES = {
    "plms": (PNDMScheduler, {"skip_prk_steps": True}),
    "ddim": (DDIMScheduler, {}),
    "dpm++2m": (DPMSolverMultistepScheduler, {"algorithm_type": "dpmsolver++"}),
    "euler": (EulerDiscreteScheduler, {}),
}


def load(cfg: DictConfig) -> StableDiffusionPipeline:
    """The pipeline of `cfg.model` with the scheduler, dtype and device of `cfg`.

    A process keeps the last model it loaded. The safety checker is off: it would replace images
    by black ones.
    """
    model = cfg.model
    pipe = _load(locate(str(model.path)), model.revision, cfg.dtype, str(device(cfg)))
    kind, options = SCHEDULER_CLASSES[cfg.generation.scheduler]
    pipe.scheduler = kind.from_config(_base_scheduler(pipe), **options)
    return pipe


@lru_cache(maxsize=1)
def _load(path: str, revision: str | None, dtype: str, where: str) -> StableDiffusionPipeline:
    folder = Path(path)
    if is_local(path) and not (folder / "model_index.json").is_file():
        raise bad("model.path", path, "must be a Diffusers pipeline folder with model_index.json")
    if folder.is_dir():
        kind = json.loads((folder / "model_index.json").read_text()).get("_class_name")
        if kind != "StableDiffusionPipeline":
            raise bad("model.path", path, f"holds a {kind}; must hold a StableDiffusionPipeline")
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    try:
        pipe = StableDiffusionPipeline.from_pretrained(
            path,
            revision=revision,
            dtype=DTYPES[dtype],
            safety_checker=None,
            requires_safety_checker=False,
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise bad("model.path", path, f"cannot be loaded: {reason}") from error
    pipe.set_progress_bar_config(disable=True)
    pipe.catome_scheduler_config = dict(pipe.scheduler.config)
    return pipe.to(where)


def _base_scheduler(pipe: StableDiffusionPipeline) -> dict[str, Any]:
    """The scheduler configuration the model came with, whatever has replaced it since."""
    return pipe.catome_scheduler_config


def is_local(path: str) -> bool:
    """Whether a model path means a folder: it exists, or cannot be a hub's `owner/name`."""
    return Path(path).exists() or path.startswith((".", "/", "~")) or path.count("/") != 1


@contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """`math`: plain matrix products and a softmax. `fused`: what PyTorch chooses by itself."""
    if name == "math":
        with sdpa_kernel(SDPBackend.MATH):
            yield
    else:
        yield


def first_noise(pipe: StableDiffusionPipeline, cfg: DictConfig, prompts: list[Prompt]):
    """(B, C, h, w) initial latents, each from its image's own seed, drawn in fp32 on the CPU: the
    same for every method, batch, dtype and device."""
    factor = pipe.vae_scale_factor
    shape = (
        pipe.unet.config.in_channels,
        cfg.generation.height // factor,
        cfg.generation.width // factor,
    )
    rows = [torch.randn(shape, generator=torch.Generator().manual_seed(p.seed)) for p in prompts]
    return torch.stack(rows).to(pipe.device, pipe.unet.dtype)


@torch.no_grad()
def generate(
    pipe: StableDiffusionPipeline, cfg: DictConfig, prompts: list[Prompt]
) -> list[Image.Image | None]:
    """One call of the pipeline: an image for each prompt, None where its values are not finite."""
    options = cfg.generation
    negative = options.negative_prompt
    with attention_backend(cfg.attention):
        arrays = pipe(
            prompt=[p.text for p in prompts],
            negative_prompt=None if negative is None else [negative] * len(prompts),
            latents=first_noise(pipe, cfg, prompts),
            # For schedulers that draw noise along the way; none that steers the first latents.
            generator=[torch.Generator().manual_seed(p.seed + 2**32) for p in prompts],
            num_inference_steps=options.steps,
            guidance_scale=options.guidance_scale,
            height=options.height,
            width=options.width,
            output_type="np",  # in a PIL image NaN would be black
        ).images
    finite = np.isfinite(arrays).all(axis=(1, 2, 3))
    images = pipe.image_processor.numpy_to_pil(np.nan_to_num(arrays))
    return [image if good else None for image, good in zip(images, finite, strict=True)]


def model_identity(path: str, revision: str | None) -> dict[str, Any]:
    """What tells one set of weights from another: a folder's content, a hub's name and revision."""
    if Path(path).is_dir():
        return {"content": folder_digest(Path(path))}
    return {"hub": path, "revision": revision or "main"}


def folder_digest(folder: Path) -> str:
    """Digest of the names and contents of a folder's files."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and ".cache" not in f.parts)
    return digest([[str(f.relative_to(folder)), _file_digest(f, f.stat().st_mtime_ns)]
                   for f in files])  # fmt: skip


@cache
def _file_digest(path: Path, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scheduler(cfg: DictConfig) -> SchedulerMixin:
    """The scheduler that `load` gives the pipeline, without loading a model.

    Raises:
        ConfigError: it is neither in a folder nor can it be downloaded.
    """
    path, options = locate(str(cfg.model.path)), {"subfolder": "scheduler"}
    try:
        found = PNDMScheduler.load_config(path, revision=cfg.model.revision, **options)
        own = getattr(diffusers, found["_class_name"])
        base = own.from_pretrained(path, revision=cfg.model.revision, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise bad("model.path", path, f"its scheduler cannot be loaded: {reason}") from error
    kind, changed = SCHEDULER_CLASSES[cfg.generation.scheduler]
    return kind.from_config(dict(base.config), **changed)


def painter_identity(cfg: DictConfig, scheduler: SchedulerMixin, method) -> dict[str, Any]:
    """All that determines an image beside its prompt and seed; JSON."""
    options = cfg.generation
    facts = {k: v for k, v in scheduler.config.items() if not k.startswith("_")}
    return {
        "model": model_identity(locate(str(cfg.model.path)), cfg.model.revision),
        "scheduler": {"class": type(scheduler).__name__, "digest": digest(facts)},
        "steps": options.steps,
        "guidance_scale": float(options.guidance_scale),
        "negative_prompt": options.negative_prompt,
        "height": options.height,
        "width": options.width,
        "dtype": cfg.dtype,
        "attention": cfg.attention,
        "method": method.identity(),
    }
