"""Statistics of a folder of photographs in pytorch-fid's `.npz`, a reference of a few megabytes."""

from __future__ import annotations

from pathlib import Path

from experiments.setup.sources import PrepareError, bad

TOOLS = ("pytorch-fid", "torch-fidelity")


def measure(options: dict) -> str:
    """Write `mu` and `sigma` of the folder's Inception features and say of what.

    Args:
        options: images (folder), out (`.npz`), tool (whose network and resize), weights (file;
            None downloads the standard ones), device, results (where features are kept).

    Raises:
        PrepareError: a setting or an image that cannot be.
    """
    # Torch is loaded by those who need it only.
    from omegaconf import OmegaConf

    from experiments.common.errors import ConfigError
    from experiments.common.files import digest
    from experiments.metrics.context import Context
    from experiments.metrics.hashes import hash_files
    from experiments.metrics.images import Preparation
    from experiments.metrics.inception import inception
    from experiments.metrics.inception_pytorch_fid import pytorch_fid_network
    from experiments.metrics.scores import Scores
    from experiments.metrics.settings import DEFAULTS, list_images
    from experiments.metrics.statistics import moments, write_statistics
    from experiments.models.device import device

    folder = Path(str(options["images"])).expanduser()
    paths = list_images(folder) if folder.is_dir() else []
    if len(paths) < 2:
        raise bad("images", folder, "must be a folder with at least 2 images")
    weights = options["weights"] and Path(str(options["weights"])).expanduser()
    if weights is not None and not weights.is_file():
        raise bad("weights", weights, "no such file; null downloads the standard ones")
    try:
        where = str(device(OmegaConf.create({"device": options["device"]})))
    except ConfigError as error:
        raise PrepareError(str(error)) from error
    settings = {**DEFAULTS, "inception_weights": weights, "pytorch_fid_weights": weights}
    results, out = Path(str(options["results"])), Path(str(options["out"])).expanduser()
    context = Context([], None, settings, results, where, Scores())
    names = [path.relative_to(folder).as_posix() for path in paths]
    index = results / "hashes" / f"reference-{digest(str(folder.resolve()))}.json"
    try:
        network = (
            pytorch_fid_network(context)
            if options["tool"] == "pytorch-fid"
            else inception(context)[1]
        )
        hashes, _ = hash_files(names, paths, index, [], "hashes of the images")
        features = context.extract(hashes, paths, network, Preparation(), "features")
        found = moments(features.chunks())
    except ValueError as error:  # weights that do not fit, an image that cannot be read
        raise PrepareError(str(error)) from error
    write_statistics(out, found.mean, found.covariance)
    return f"{out}: {found.n} images of {folder.name} as they are, {network.described}"
