"""torch-fidelity's Inception v3 and the name that its weights give to the distance."""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch_fidelity.feature_extractor_inceptionv3 import (
    URL_INCEPTION_V3,
    FeatureExtractorInceptionV3,
)

from experiments.evaluate.images import to_tensor
from experiments.evaluate.settings import refuse

STANDARD = "6726825d"  # of the SHA-256, published as the suffix of the standard weights' file name
LAYER = "2048"


def fid_column(sha256: str) -> str:
    """`FID` for the standard weights; any other file's distance says which file it was."""
    return "FID" if sha256.startswith(STANDARD) else f"FD (Inception {sha256[:8]})"


def file_sha256(path: Path) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_inception(weights: Path | None, device: str) -> tuple[FeatureExtractorInceptionV3, str]:
    """The network on `device` and the SHA-256 of its weights file.

    Args:
        weights: a state dict of torch-fidelity's Inception v3; None downloads the standard one
            to torch's hub folder, where torch-fidelity looks for it.

    Raises:
        ConfigError: no download, or a file that does not fit.
    """
    if weights is None:
        try:
            model = FeatureExtractorInceptionV3("inception-v3-compat", [LAYER])
        except (OSError, RuntimeError) as error:
            message = f"the download of {URL_INCEPTION_V3} failed ({_first_line(error)}); "
            raise refuse("inception_weights", None, message + "give a file") from error
        weights = Path(torch.hub.get_dir()) / "checkpoints" / URL_INCEPTION_V3.rsplit("/", 1)[1]
        return model.to(device), file_sha256(weights)
    sha256 = file_sha256(weights)
    try:
        if not sha256.startswith(STANDARD):
            # torch-fidelity unpickles whatever the file holds; of an unknown one, tensors only.
            torch.load(weights, map_location="cpu", weights_only=True)
        model = FeatureExtractorInceptionV3(
            "inception-v3-compat", [LAYER], feature_extractor_weights_path=str(weights)
        )
    except (OSError, RuntimeError, TypeError, EOFError, pickle.UnpicklingError) as error:
        allowed = f"must be a state dict of torch-fidelity's Inception v3 ({_first_line(error)})"
        raise refuse("inception_weights", weights, allowed) from error
    return model.to(device), sha256


@torch.no_grad()
def inception_features(
    model: FeatureExtractorInceptionV3, images: list[Image.Image], device: str
) -> np.ndarray:
    """(n, 2048) float32 of RGB pictures of any sizes; the network resizes them to 299 x 299."""
    features = []
    start = 0
    for i in range(1, len(images) + 1):
        if i == len(images) or images[i].size != images[start].size:
            batch = torch.stack([to_tensor(image) for image in images[start:i]])
            features.append(model(batch.to(device))[0].cpu().numpy())
            start = i
    return np.concatenate(features)


class _Uninitialised(FeatureExtractorInceptionV3):
    """The architecture without weights, which the parent's constructor insists on."""

    def __init__(self):
        empty = io.BytesIO()
        torch.save({}, empty)
        empty.seek(0)
        super().__init__("random", [LAYER], feature_extractor_weights_path=empty)

    def load_state_dict(self, *args, **kwargs):
        pass


@torch.no_grad()
def save_random_inception(path: Path, images: torch.Tensor, seed: int = 0) -> Path:
    """Write a weights file of random Inception v3 that still tells images apart, for tests.

    Default initialisation gives features near zero, hence a distance near zero for anything: so
    the BatchNorm statistics are those of `images`, in one pass.

    Args:
        images: (n, 3, height, width) uint8, n >= 2, varied ones.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _Uninitialised()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over passes, here of one
        norm.train()
    model(images)
    torch.save(model.state_dict(), path)
    return Path(path)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
