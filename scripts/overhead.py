"""What painting through the runner costs over a bare Diffusers loop.

    python scripts/overhead.py turns=10 prompts.limit=4 generation.batch_size=4
    python scripts/overhead.py turns=5 benchmark=coco2017_5k model.path=<folder> prompts.limit=2 \\
        prompts.path=<captions> metrics.reference=<photographs>

Any setting of `run.py` may follow `turns`. The bare loop calls the pipeline on the same prompts and
seeds and saves the PNGs; the runner paints them into a store of its own each time. They take turns
in one process. Prints the median of the paired ratios runner / bare with its interval. Painting
varies by more than either costs, so it also prints the seconds that pass outside of the pipeline's
calls, the processor's seconds that the runner's writing takes beside painting, and the ratio that
follows if painting itself takes equally long and waits for all of the writing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from omegaconf import DictConfig

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from experiments.accelerators.build import build_method  # noqa: E402
from experiments.bench.measure import ratio, take_turns  # noqa: E402
from experiments.common import command  # noqa: E402
from experiments.common.errors import bad  # noqa: E402
from experiments.models import pipelines  # noqa: E402
from experiments.models.device import device  # noqa: E402
from experiments.painting import generate  # noqa: E402
from experiments.painting.identity import painter_identity  # noqa: E402
from experiments.painting.prompts import load_prompts  # noqa: E402
from experiments.painting.store import ImageStore, Prompt  # noqa: E402
from experiments.runner.validation import validate  # noqa: E402
from experiments.settings.messages import compose_config  # noqa: E402


class Watched:
    """A pipeline that adds up the seconds of its calls."""

    def __init__(self, pipe):
        self.pipe, self.seconds = pipe, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.pipe(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - start


def outside(pipe: Watched, work: Callable[..., None], given: tuple[Any, ...], to: list[float]):
    """Do the work, and note the seconds that passed outside of the pipeline's calls."""
    start, before = time.perf_counter(), pipe.seconds
    work(pipe, *given)
    to.append(time.perf_counter() - start - (pipe.seconds - before))


class WatchedStore(ImageStore):
    """An image store that adds up the processor's seconds of its writing, a thread of its own."""

    seconds = 0.0

    def write(self, *args: Any, **kwargs: Any) -> Any:
        start = time.thread_time()
        try:
            return super().write(*args, **kwargs)
        finally:
            WatchedStore.seconds += time.thread_time() - start


def bare(pipe, cfg: DictConfig, prompts: list[Prompt], folder: Path) -> None:
    options = cfg.generation
    for begin in range(0, len(prompts), options.batch_size):
        part = prompts[begin : begin + options.batch_size]
        images = pipe(
            [prompt.text for prompt in part],
            generator=[torch.Generator().manual_seed(prompt.seed) for prompt in part],
            num_inference_steps=options.steps,
            guidance_scale=options.guidance_scale,
            height=options.height,
            width=options.width,
        ).images
        for prompt, image in zip(part, images, strict=True):
            image.save(folder / f"{prompt.seed}.png")


def through_the_runner(pipe, cfg: DictConfig, prompts: list[Prompt], folder: Path) -> None:
    method = build_method(cfg)
    identity = painter_identity(cfg, pipe.scheduler, method)
    root = Path(tempfile.mkdtemp(dir=folder))
    generate.paint(cfg, pipe, method, WatchedStore(root, identity), prompts, "runner")


def overhead(argv: list[str]) -> str:
    turns = turns_of(argv[0])
    cfg = compose_config(["method=none", *argv[1:]])
    validate(cfg)
    prompts, _ = load_prompts(cfg)
    pipe = Watched(pipelines.load(cfg))
    works = {"bare": bare, "runner": through_the_runner}
    beside: dict[str, list[float]] = {name: [] for name in works}
    with tempfile.TemporaryDirectory() as temporary:
        given = cfg, prompts, Path(temporary)
        calls = {
            name: partial(outside, pipe, work, given, beside[name]) for name, work in works.items()
        }
        seconds = take_turns(calls, turns, device(cfg), "turns")
    found = ratio(seconds, "runner", "bare")
    each = {name: median(values) / len(prompts) for name, values in seconds.items()}
    more = {name: median(values) / len(prompts) for name, values in beside.items()}
    images = len(prompts) * len(beside["runner"])  # warm-up too
    writing = WatchedStore.seconds / images
    bound = 1 + (more["runner"] + writing - more["bare"]) / each["bare"]
    return (
        f"runner / bare: {found.value:.4f} ({found.low:.4f} to {found.high:.4f}), {turns} turns of "
        f"{len(prompts)} images; {each['bare']:.2f} and {each['runner']:.2f} s an image\n"
        f"outside of the pipeline's calls: bare {more['bare']:.4f}, runner {more['runner']:.4f} s "
        f"an image; writing beside painting {writing:.4f} s: at most {bound:.4f}"
    )


def turns_of(given: str) -> int:
    key, _, value = given.partition("=")
    if key != "turns" or not value.isdecimal() or int(value) < 1:
        raise bad(key, value, "the first argument must be turns=1, 2, ...")
    return int(value)


if __name__ == "__main__":
    sys.exit(command.run(sys.argv[1:], __doc__, overhead))
