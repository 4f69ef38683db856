"""The most memory that was in use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch


def reset_peak_memory(cuda: bool) -> None:
    """Start a new high-water mark: of CUDA's allocator, or of the process's resident memory."""
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        return
    with suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_gb(cuda: bool) -> float | None:
    """GiB at the high-water mark since `reset_peak_memory`; None where it cannot be read."""
    if cuda:
        return torch.cuda.max_memory_allocated() / 2**30
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    line = next((x for x in status.splitlines() if x.startswith("VmHWM:")), None)
    return int(line.split()[1]) / 2**20 if line else None
