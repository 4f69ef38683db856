"""The one entry point of the metrics."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from experiments.metrics.audit import audit, look_at
from experiments.metrics.context import Context
from experiments.metrics.scores import Scores
from experiments.metrics.settings import check_metrics
from experiments.painting.store import Painted


def file_of(name: str) -> ModuleType:
    """A metric's file, imported only where it is asked for: their libraries are slow to load."""
    return import_module(f"experiments.metrics.{name}")


def evaluate_rows(
    rows: list[Painted], baseline: Painted | None, metrics: dict, cache: Path, device: str
) -> Scores:
    """Measure the images of all rows.

    Args:
        rows: the rows to measure, each with all its images.
        baseline: the row that PSNR, SSIM, LPIPS and the distance to the baseline compare with;
            None leaves those out.
        metrics: the config section `metrics`, see `experiments.metrics.settings`.
        cache: features are kept under `cache/features`, so that only new images are computed, and
            the hashes by which images are known under `cache/hashes`.
        device: torch's name of the device on which features are computed.

    Raises:
        ConfigError: a setting that cannot be, weights that cannot be loaded, or an image that is
            missing, cannot be read or has another size than its pair.
    """
    settings = check_metrics(metrics)
    scores = Scores.of(rows)
    if not rows:
        return scores
    context = Context(list(rows), baseline, settings, Path(cache), device, scores)
    for name in settings["names"]:
        file_of(name).measure(context)
    audit(context)
    if context.preparation.id:
        scores.notes.append(
            f"Painted images were {context.preparation.described.removeprefix('not cropped, ')} "
            "before features were taken; comparisons with the baseline's images are of the PNGs."
        )
    scores.protocol["painted"] = settings["painted"]
    return scores


def keep_features(row: Painted, metrics: dict, cache: Path, device: str) -> None:
    """Extract what the metrics will ask of these images, so that an evaluation finds it; the
    arguments are those of `evaluate_rows`."""
    settings = check_metrics(metrics)
    if not row.images:
        return
    context = Context([row], None, settings, Path(cache), device, Scores.of([row]))
    for name in settings["names"]:
        network = getattr(file_of(name), "network", None)
        if network is not None:  # others compare pixels with the baseline's
            context.painted(row, network(context))
    look_at(context)
