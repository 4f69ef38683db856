"""The one entry point of the metrics."""

from __future__ import annotations

from pathlib import Path

from experiments.metrics import (
    clip_score,
    fd_clip,
    fd_dinov2,
    fd_toy,
    fid,
    fid_pytorch_fid,
    fid_to_baseline,
    isc,
    kid,
    lpips,
    prc,
    psnr,
    ssim,
)
from experiments.metrics.audit import audit, look_at
from experiments.metrics.context import Context
from experiments.metrics.networks import network_of
from experiments.metrics.scores import Scores
from experiments.metrics.settings import check_metrics
from experiments.painting.store import Painted

METRICS = {
    "fid": fid.measure,
    "fid_pytorch_fid": fid_pytorch_fid.measure,
    "kid": kid.measure,
    "isc": isc.measure,
    "prc": prc.measure,
    "fd_clip": fd_clip.measure,
    "fd_dinov2": fd_dinov2.measure,
    "fd_toy": fd_toy.measure,
    "clip_score": clip_score.measure,
    "clip_toy": clip_score.measure_toy,
    "fid_to_baseline": fid_to_baseline.measure,
    "psnr": psnr.measure,
    "ssim": ssim.measure,
    "lpips": lpips.measure,
}


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
        METRICS[name](context)
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
        network = network_of(context, name)
        if network is not None:
            context.painted(row, network)
    look_at(context)
