"""What painting through the runner costs over a bare Diffusers loop.

    python scripts/overhead.py turns=10 prompts.limit=4 generation.batch_size=4
    python scripts/overhead.py turns=5 benchmark=coco2017_5k model.path=<folder> prompts.limit=2

Any setting of `run.py` may follow `turns`. The bare loop calls the pipeline on the same prompts and
seeds and saves the PNGs; the runner paints them into a store of its own each time. They take turns
in one process. Prints the median of the paired ratios runner / bare with its interval.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from experiments import generate, pipelines, runner  # noqa: E402
from experiments.bench.measure import ratio, take_turns  # noqa: E402
from experiments.config import build_method, device  # noqa: E402
from experiments.store import ImageStore, Prompt  # noqa: E402


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
    identity = pipelines.painter_identity(cfg, pipe.scheduler, method)
    root = Path(tempfile.mkdtemp(dir=folder))
    generate.paint(cfg, pipe, method, ImageStore(root, identity), prompts, "runner")


def main(turns: int, overrides: list[str]) -> None:
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", ["method=none", *overrides])
    runner.validate(cfg)
    prompts, _ = runner.load_prompts(cfg)
    pipe = pipelines.load(cfg)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        given = pipe, cfg, prompts, folder
        seconds = take_turns(
            {
                "bare": lambda: bare(*given),
                "runner": lambda: through_the_runner(*given),
            },
            turns, device(cfg), "turns",
        )  # fmt: skip
    found = ratio(seconds, "runner", "bare")
    each = {
        name: sorted(values)[len(values) // 2] / len(prompts) for name, values in seconds.items()
    }
    print(
        f"runner / bare: {found.value:.4f} ({found.low:.4f} to {found.high:.4f}), {turns} turns of "
        f"{len(prompts)} images; {each['bare']:.2f} and {each['runner']:.2f} s an image"
    )


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].startswith("turns="):
        sys.exit(__doc__)
    main(int(sys.argv[1].removeprefix("turns=")), sys.argv[2:])
