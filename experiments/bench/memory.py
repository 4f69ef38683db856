"""Peak memory of one U-Net evaluation, of a process that does nothing else.

    python -m experiments.bench.memory variant=tomesd architecture=sd15 pixels=1024

Prints GiB: of CUDA's allocator, or the high-water mark of the process's resident memory.
"""

from __future__ import annotations

import subprocess
import sys

import torch
from omegaconf import OmegaConf

import catome
from experiments.bench import unets, variants
from experiments.common.paths import ROOT
from experiments.timing.memory import peak_memory_gb, reset_peak_memory

RATIO = 0.5
VARIANTS = (variants.UNPATCHED, variants.TOMESD, variants.MATCH)
OPTIONS = {
    "variant": variants.UNPATCHED, "architecture": "sd15", "pixels": 1024, "dtype": "bfloat16",
    "device": "cpu",
}  # fmt: skip


def peak(options) -> float:
    where = torch.device(options.device)
    dtype = getattr(torch, options.dtype)
    of = unets.subject(options.architecture, options.pixels, dtype, where)
    model = of.unet
    if options.variant == variants.TOMESD:
        model = variants.by_tomesd(of.unet, RATIO, of.finest)
    elif options.variant == variants.MATCH:
        select = catome.Ratio(RATIO)
        model = variants.by_catome(of.unet, select, catome.EveryStep(), of.finest)
    reset_peak_memory(where.type == "cuda")
    for _ in range(2):
        unets.run(model, of.given)
    return peak_memory_gb(where.type == "cuda")


def peaks(architecture: str, pixels: int, dtype: str, device: str) -> dict[str, float]:
    """{variant: GiB}, each in a process of its own."""
    found = {}
    for variant in VARIANTS:
        command = [
            sys.executable, "-m", "experiments.bench.memory", f"variant={variant}",
            f"architecture={architecture}", f"pixels={pixels}", f"dtype={dtype}",
            f"device={device}",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found[variant] = float(done.stdout.split()[-1])
    return found


if __name__ == "__main__":
    print(peak(OmegaConf.merge(OPTIONS, OmegaConf.from_cli())))
