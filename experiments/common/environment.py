"""What a number was measured on: hardware, threads, kernels, library versions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from experiments.common.paths import ROOT

SNAPSHOT = "snapshot.json"  # in a copy of the code that jobs run; says of which commit it is
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
LIBRARIES = ("torch", "diffusers", "transformers", "torchmetrics", "torch-fidelity", "numpy")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def code() -> dict[str, Any]:
    """The commit that is checked out and how many files differ from it, or those of the checkout
    that this code was copied from; empty where neither is known."""
    copied = ROOT / SNAPSHOT
    if copied.is_file():
        return json.loads(copied.read_text(encoding="utf-8"))
    try:
        commit = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": commit[:12], "changed_files": len(changed)}


def git(*arguments: str) -> str:
    """What a git command prints of this checkout; CalledProcessError where there is none."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe(device: torch.device, dtype: str, attention: str) -> dict[str, Any]:
    """A flat dict for tables and CSVs."""
    facts = {
        "device": device_name(device),
        "device_type": device.type,
        "cpu_count": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "dtype": dtype,
        "attention_backend": attention,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cuda": torch.version.cuda,
    }
    if os.environ.get(HUGE_PAGES) == "1":  # PyTorch's own switch: large tensors in 2 MB pages
        facts["huge_pages"] = True
    return facts | {f"version_{k}": v for k, v in versions().items()}
