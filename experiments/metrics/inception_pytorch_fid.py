"""pytorch-fid's Inception v3, with the resize that the published tables were computed with."""

from __future__ import annotations

import pickle
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from pytorch_fid import inception as pytorch_fid

from experiments.common.errors import first_line
from experiments.common.files import file_sha256
from experiments.metrics.context import Context, Network
from experiments.metrics.images import by_size
from experiments.metrics.inception import STANDARD
from experiments.metrics.settings import refuse

KEY = "pytorch_fid_weights"


def pytorch_fid_column(sha256: str) -> str:
    """`FID (pytorch-fid)` for the standard weights; else which file it was."""
    if sha256.startswith(STANDARD):
        return "FID (pytorch-fid)"
    return f"FD (pytorch-fid Inception {sha256[:8]})"


def load_pytorch_fid(weights: Path | None, device: str) -> tuple[torch.nn.Module, str]:
    """pytorch-fid's network up to its 2,048 features, and the SHA-256 of its weights file.

    Args:
        weights: a state dict; None downloads the standard one to torch's hub folder, where
            pytorch-fid itself keeps it.

    Raises:
        ConfigError: no download, or a file that does not fit.
    """
    url = pytorch_fid.FID_WEIGHTS_URL
    try:
        if weights is None:
            state = torch.hub.load_state_dict_from_url(
                url, map_location="cpu", progress=False, weights_only=True
            )
        else:
            state = torch.load(weights, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = f"the download of {url} failed" if weights is None else "must be a state dict"
        raise refuse(KEY, weights, f"{reason} ({first_line(error)})") from error
    # Its constructor downloads, whatever one has; it is handed the weights instead.
    download = pytorch_fid.load_state_dict_from_url
    pytorch_fid.load_state_dict_from_url = lambda *args, **kwargs: state
    try:
        model = pytorch_fid.InceptionV3([pytorch_fid.InceptionV3.DEFAULT_BLOCK_INDEX])
    except (RuntimeError, TypeError, AttributeError) as error:
        allowed = f"must be a state dict of pytorch-fid's Inception v3 ({first_line(error)})"
        raise refuse(KEY, weights, allowed) from error
    finally:
        pytorch_fid.load_state_dict_from_url = download
    if weights is None:
        weights = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[1]
    return model.eval().to(device), file_sha256(weights)


def pytorch_fid_network(context: Context) -> Network:
    """`metrics.pytorch_fid_weights`: 2,048 features of pictures of any sizes."""

    @torch.no_grad()
    def features(batch: torch.Tensor) -> np.ndarray:
        # As torchvision's ToTensor; the network itself resizes to 299 x 299.
        return model(batch.to(context.device).float() / 255)[0].flatten(1).cpu().numpy()

    def load() -> tuple[torch.nn.Module, str]:
        return load_pytorch_fid(context.settings[KEY], context.device)

    model, sha256 = context.once(KEY, load)
    return Network(
        f"pytorch-fid-2048-{sha256[:16]}",
        lambda images: by_size(images, features),
        2048,
        sha256,
        f"pytorch-fid {version('pytorch-fid')}'s Inception v3 and resize, weights with SHA-256 "
        f"{sha256[:8]}…",
    )
