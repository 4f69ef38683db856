"""The device that a configuration names."""

from __future__ import annotations

import torch
from omegaconf import DictConfig

from experiments.common.errors import bad
from experiments.common.requirements import require_device_name
from experiments.settings.choices import LARGEST


def device(cfg: DictConfig) -> torch.device:
    """`cfg.device`, `auto` being CUDA where there is one."""
    name = str(cfg.device)
    require_device_name("device", name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu":
        index = int(name[5:] or 0) if ":" in name else 0
        if index >= torch.cuda.device_count():
            found = torch.cuda.device_count()
            raise bad("device", name, f"{found} CUDA devices found; use device=cpu")
    return torch.device(name)


def require_device(cfg: DictConfig) -> None:
    """Raise ConfigError where this machine lacks what the configuration asks of its device."""
    if device(cfg).type != "cuda" and cfg.timing.batch_size == LARGEST:
        raise bad("timing.batch_size", LARGEST, "needs CUDA, whose memory bounds it; use a number")
