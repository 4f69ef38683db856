"""Loading pretrained networks: transformers models in float32, torchvision's state dicts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import torch
import torchvision
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedModel

from experiments.common.errors import ConfigError, first_line
from experiments.common.files import file_sha256
from experiments.metrics.settings import refuse


def load_pretrained(
    kind: type[PreTrainedModel], name: str | Path, key: str
) -> tuple[PreTrainedModel, str]:
    """The model, in evaluation mode on the CPU, and the SHA-256 of its weights.

    Args:
        kind: the class to load.
        name: hub name or folder.
        key: the config key that named it, for the error.

    Raises:
        ConfigError: a model of another type, incomplete weights, or no download.
    """
    name = str(name)
    with readable(kind.__name__, name, key):
        found = AutoConfig.from_pretrained(name).model_type
        if found != kind.config_class.model_type:
            raise refuse(key, name, f"must be a {kind.__name__}, not a model of type {found}")
        # Weights kept as fp16 are computed with in fp32: scores do not depend on the storage.
        model, loading = kind.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
    if loading["missing_keys"]:
        missing = sorted(loading["missing_keys"])[0]
        raise refuse(key, name, f"the weights lack {missing} and perhaps more")
    weights = hashlib.sha256()
    for parameter, value in sorted(model.state_dict().items()):
        weights.update(f"{parameter} {tuple(value.shape)}".encode())
        weights.update(value.contiguous().numpy().tobytes())
    return model.eval().requires_grad_(False), weights.hexdigest()


@contextmanager
def readable(kind: str, name: str, key: str) -> Iterator[None]:
    """Turns what transformers raises for a missing or broken file into one line."""
    try:
        yield
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError, UnpicklingError) as error:
        reason = f"cannot be loaded as a {kind} ({first_line(error)})"
        raise refuse(key, name, reason) from error


def torchvision_state(
    weights: torchvision.models.WeightsEnum, file: Path | None, key: str
) -> tuple[dict[str, torch.Tensor], Path, str]:
    """A state dict of torchvision's, its file and the SHA-256 of that.

    Args:
        weights: which; None for `file` downloads them to torch's hub folder.
        file: weights of the same kind.
        key: the config key that named it, for the error.

    Raises:
        ConfigError: no download, or a file that holds anything but tensors.
    """
    url = weights.url
    try:
        if file is None:
            state = torch.hub.load_state_dict_from_url(
                url, map_location="cpu", progress=False, check_hash=True, weights_only=True
            )
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
        reason = f"the download of {url} failed" if file is None else "must be a state dict"
        raise refuse(key, file, f"{reason} ({first_line(error)})") from error
    if file is None:
        file = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[1]
    return state, file, file_sha256(file)


def is_published(weights: torchvision.models.WeightsEnum, sha256: str) -> bool:
    """Whether a file is torchvision's own, whose name ends in the first digits of its SHA-256."""
    return sha256.startswith(Path(weights.url).stem.rsplit("-", 1)[1])


def shown(name: str | Path) -> str:
    """A hub name, or the name of a folder, for a column."""
    return name.name if isinstance(name, Path) else name
