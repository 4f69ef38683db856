"""The generate stage: paint the images a row lacks."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import DictConfig
from PIL import Image
from tqdm import tqdm

from experiments.accelerators.base import Method
from experiments.common import environment
from experiments.common.errors import ConfigError, RowFailed, kind_and_line
from experiments.models.device import device
from experiments.painting import pipeline_call
from experiments.painting.store import ImageStore, Prompt

log = logging.getLogger("catome")
NOT_FINITE = "its values are not finite"


@dataclass
class Painting:
    """One row in progress: `batch` shrinks where memory does not suffice, `failed` says why an
    image could not be painted."""

    cfg: DictConfig
    pipe: Any
    method: Method
    attached: Any
    batch: int
    failed: dict[Prompt, str] = field(default_factory=dict)

    def images(self, prompts: list[Prompt]) -> list[tuple[Prompt, Image.Image, dict[str, Any]]]:
        """Each prompt's image and the method's facts about it; what is not painted is tried once
        more by itself, then given up.

        Raises:
            torch.OutOfMemoryError: the batch does not fit.
            RuntimeError, ValueError: of a row whose images depend on each other.
        """
        painted, why = self.attempt(prompts)
        for prompt in prompts:
            if prompt in painted:
                continue
            if not self.method.order_dependent:
                log.warning("%s (seed %d): %s; tried again", prompt.text, prompt.seed, why)
                again, why = self.attempt([prompt])
                painted |= again
            if prompt not in painted:
                self.failed[prompt] = why
        return [(prompt, *painted[prompt]) for prompt in prompts if prompt in painted]

    def attempt(
        self, prompts: list[Prompt]
    ) -> tuple[dict[Prompt, tuple[Image.Image, dict[str, Any]]], str]:
        """What one call of the pipeline paints, and why it may lack some.

        The batch is always full: kernels round otherwise where there are fewer images, and an
        image must not depend on how many of the others were there already.
        """
        spare = 0 if self.method.order_dependent else max(0, self.batch - len(prompts))
        full = prompts + prompts[-1:] * spare
        try:
            images = pipeline_call.generate(self.pipe, self.cfg, full)
        except (RuntimeError, ValueError) as error:
            self.method.per_image(self.attached, len(full))  # records of half a generation
            if self.method.order_dependent or isinstance(error, torch.OutOfMemoryError):
                raise
            return {}, kind_and_line(error)
        facts = self.method.per_image(self.attached, len(full))
        whole = zip(prompts, images, facts, strict=False)  # without the spare ones
        return {p: (image, fact) for p, image, fact in whole if image is not None}, NOT_FINITE


def paint(
    cfg: DictConfig,
    pipe,
    method: Method,
    store: ImageStore,
    prompts: list[Prompt],
    label: str,
    on_match: Callable[[str], None] | None = None,
    of: int | None = None,
) -> int:
    """Paint the missing images, batch by batch; returns how many were painted.

    Each PNG appears whole, encoded and written while the next batch is painted: an interruption
    loses the batch in flight, a kill also what of the one before was not written yet. Rows
    whose images depend on each other are painted from the first to the last or not at all. Where
    the device's memory does not suffice the batch is halved for the rest of the row; the size is
    in each image's record.

    Args:
        of: how many images a replicate of the row has, where `prompts` is a share; no batch is
            larger, so that rows with more replicates have the same batches.

    Raises:
        ConfigError: the method does not suit the size of the images.
        OSError: an image could not be written.
        RowFailed: some images could not be painted, at the second try neither; the others are.
        torch.OutOfMemoryError: a single image does not fit.
        KeyboardInterrupt: asked to stop; after the batch in flight, or at once if asked twice.
    """
    factor = pipe.vae_scale_factor
    try:
        method.check_latent(cfg.generation.height // factor, cfg.generation.width // factor)
    except ValueError as error:
        raise ConfigError(f"method.{error}") from None
    store.write_identity()
    store.forget_unfinished()
    missing = store.missing(prompts)
    if method.order_dependent and missing:
        store.clear()
        missing = list(dict.fromkeys(prompts))
    if not missing:
        return 0
    where = {"device": environment.device_name(device(cfg)), "versions": environment.versions()}
    done = 0
    with (
        method.attach(pipe, record=True, on_match=on_match) as attached,
        tqdm(total=len(missing), desc=label, unit="image") as progress,
        stopping_after_the_batch() as asked,
        ThreadPoolExecutor(1) as writer,
    ):
        writing: list[Future] = []
        batch = min(cfg.generation.batch_size, of or images_of_a_replicate(prompts))
        work = Painting(cfg, pipe, method, attached, batch)
        while done < len(missing):
            part = missing[done : done + work.batch]
            try:
                painted = work.images(part)
            except torch.OutOfMemoryError:
                if work.batch == 1 or method.order_dependent:
                    raise
                work.batch = max(1, work.batch // 2)
                torch.cuda.empty_cache()
                log.warning("%s: out of memory, the batch is now %d", label, work.batch)
                continue
            results_of(writing)
            writing = [
                writer.submit(
                    store.write, prompt, image, {**where, "batch_size": work.batch, **fact}
                )
                for prompt, image, fact in painted
            ]
            done += len(part)
            progress.update(len(part))
            if asked.is_set() and done < len(missing):
                results_of(writing)
                log.warning("%s: stopped, %d of %d painted", label, done, len(missing))
                raise KeyboardInterrupt
        results_of(writing)
    if work.failed:
        first, why = next(iter(work.failed.items()))
        raise RowFailed(
            f"{len(work.failed)} of {len(missing)} images could not be painted, the first "
            f"“{first.text}” (seed {first.seed}): {why}"
        )
    return done


def results_of(writing: list[Future]) -> None:
    """Wait for the images of a batch.

    Raises:
        OSError: of the first that could not be written.
    """
    for written in writing:
        written.result()


def images_of_a_replicate(prompts: list[Prompt]) -> int:
    return len({p for p in prompts if p.replicate == prompts[0].replicate})


@contextmanager
def stopping_after_the_batch() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, the second interrupts at once as usual."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(*_: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)
        log.warning("stopping after this batch; Ctrl-C again stops at once")

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # in the background, where Ctrl-C is not meant
        yield asked
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
