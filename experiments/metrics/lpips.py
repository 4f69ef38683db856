"""LPIPS against the baseline's images: a distance in a classifier's features; lower is better.

Zhang et al. 2018 (arXiv 1801.03924), version 0.1, by torchmetrics: its linear layers over
torchvision's AlexNet, VGG-16 or SqueezeNet.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torchvision
from torchmetrics.functional.image import lpips as torchmetrics_lpips

from experiments.common.errors import first_line
from experiments.metrics.context import Context
from experiments.metrics.paired import add_paired, compare, without_baseline
from experiments.metrics.pretrained import is_published, torchvision_state
from experiments.metrics.settings import refuse
from experiments.painting.store import Painted

WEIGHTS = {
    "alex": torchvision.models.AlexNet_Weights.IMAGENET1K_V1,
    "vgg": torchvision.models.VGG16_Weights.IMAGENET1K_V1,
    "squeeze": torchvision.models.SqueezeNet1_1_Weights.IMAGENET1K_V1,
}
SLICES = {"alex": 1, "vgg": 1, "squeeze": 2}  # dotted parts before a layer's number


def measure(context: Context) -> None:
    """Add each row's mean over images that differ from the baseline's, the 95th percentile too."""
    net = context.settings["lpips_net"]
    if without_baseline(context, f"LPIPS ({net})"):
        return
    model, sha256 = load_lpips(net, context.settings["lpips_backbone"], context.device)
    column = lpips_column(net, sha256)

    @torch.no_grad()
    def function(one: torch.Tensor, other: torch.Tensor) -> np.ndarray:
        return model(one, other, normalize=True).cpu().numpy().reshape(1)

    def values(row: Painted) -> tuple[np.ndarray, np.ndarray]:
        found, same = compare(context, row, f"lpips-{net}-{sha256[:16]}", 1, function)
        return found[:, 0], same

    add_paired(context, column, "lpips", "lower", values)
    context.notes[-1] += f" Version 0.1, backbone weights with SHA-256 {sha256[:8]}…."
    context.scores.protocol["lpips"] = {"column": column, "net": net, "weights_sha256": sha256}


def lpips_column(net: str, sha256: str) -> str:
    """`LPIPS (alex)` with torchvision's own weights; else which file it was."""
    other = "" if is_published(WEIGHTS[net], sha256) else f", backbone {sha256[:8]}"
    return f"LPIPS ({net}{other})"


def load_lpips(net: str, backbone: Path | None, device: str) -> tuple[torch.nn.Module, str]:
    """torchmetrics' network and the SHA-256 of the file of its backbone.

    Args:
        net: alex, vgg or squeeze.
        backbone: torchvision's state dict of it; None lets torchvision download it.

    Raises:
        ConfigError: no download, or a file that does not fit.
    """
    state, _, sha256 = torchvision_state(WEIGHTS[net], backbone, "lpips_backbone")
    model = torchmetrics_lpips._NoTrainLpips(net=net, pnet_rand=True)
    try:
        # torchmetrics cuts torchvision's `features` into slices but keeps the layers' numbers.
        layers = {
            key: state[f"features.{key.split('.', SLICES[net])[-1]}"]
            for key in model.net.state_dict()
        }
        model.net.load_state_dict(layers)
    except (KeyError, TypeError) as error:
        allowed = f"must be torchvision's state dict for {net}, it lacks {first_line(error)}"
        raise refuse("lpips_backbone", backbone, allowed) from error
    except RuntimeError as error:
        allowed = f"must be torchvision's state dict for {net} ({first_line(error)})"
        raise refuse("lpips_backbone", backbone, allowed) from error
    return model.to(device), sha256
