"""torch-fidelity's Inception v3 and the name that its weights give to the distance."""

from __future__ import annotations

import io
import pickle
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch_fidelity.feature_extractor_inceptionv3 import (
    URL_INCEPTION_V3,
    FeatureExtractorInceptionV3,
)

from experiments.common.errors import first_line
from experiments.common.files import file_sha256
from experiments.metrics.context import Context, Network
from experiments.metrics.images import by_size
from experiments.metrics.settings import refuse

STANDARD = "6726825d"  # of the SHA-256, the suffix of the standard weights' published file names
LAYER = "2048"


def fid_column(sha256: str) -> str:
    """`FID` for the standard weights; any other file's distance says which file it was."""
    return weights_column("FID", "FD", sha256)


def weights_column(name: str, other: str, sha256: str) -> str:
    """`name` for the standard weights, else `other (Inception <hash>)`."""
    return name if sha256.startswith(STANDARD) else f"{other} ({network_name(sha256)})"


def network_name(sha256: str) -> str:
    """`Inception`, followed by the hash of weights that are not the standard ones."""
    return "Inception" if sha256.startswith(STANDARD) else f"Inception {sha256[:8]}"


def inception(context: Context) -> tuple[FeatureExtractorInceptionV3, Network]:
    """`metrics.inception_weights` as torch-fidelity computes: model and its 2,048 features."""

    def load() -> tuple[FeatureExtractorInceptionV3, Network]:
        model, sha256 = load_inception(context.settings["inception_weights"], context.device)
        described = (
            f"torch-fidelity {version('torch-fidelity')}'s Inception v3, layer {LAYER}, weights "
            f"with SHA-256 {sha256[:8]}…"
        )
        return model, Network(
            f"inception-v3-compat-{LAYER}-{sha256[:16]}",
            lambda images: inception_features(model, images, context.device),
            int(LAYER),
            sha256,
            described,
        )

    return context.once("inception", load)


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
            message = f"the download of {URL_INCEPTION_V3} failed ({first_line(error)}); "
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
        allowed = f"must be a state dict of torch-fidelity's Inception v3 ({first_line(error)})"
        raise refuse("inception_weights", weights, allowed) from error
    return model.to(device), sha256


@torch.no_grad()
def inception_features(
    model: FeatureExtractorInceptionV3, images: list[Image.Image], device: str
) -> np.ndarray:
    """(n, 2048) float32 of RGB pictures of any sizes; the network resizes them to 299 x 299."""
    return by_size(images, lambda batch: model(batch.to(device))[0].cpu().numpy())


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
