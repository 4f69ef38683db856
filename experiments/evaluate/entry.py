"""The one entry point of the metrics."""

from __future__ import annotations

from pathlib import Path

from experiments.evaluate import clip_score, fd_toy, fid, psnr, ssim
from experiments.evaluate.scores import Scores
from experiments.evaluate.settings import check_metrics
from experiments.store import Painted

METRICS = {
    "fid": fid.measure,
    "clip_score": clip_score.measure,
    "fd_toy": fd_toy.measure,
    "clip_toy": clip_score.measure_toy,
    "psnr": psnr.measure,
    "ssim": ssim.measure,
}


def evaluate_rows(
    rows: list[Painted], baseline: Painted | None, metrics: dict, cache: Path, device: str
) -> Scores:
    """Measure the images of all rows.

    Args:
        rows: the rows to measure, each with all its images.
        baseline: the row whose images PSNR and SSIM compare with; None leaves those two out.
        metrics: the config section `metrics`, see `experiments.evaluate.settings`.
        cache: features are kept under `cache/features`, so that only new images are computed.
        device: torch's name of the device on which features are computed.

    Raises:
        ConfigError: a setting that cannot be, or weights that cannot be loaded.
        ValueError: an image that is missing, cannot be read or has another size than its pair.
    """
    settings = check_metrics(metrics)
    scores = Scores.of(rows)
    if not rows:
        return scores
    for name in settings["names"]:
        METRICS[name](rows, baseline, settings, Path(cache) / "features", device, scores)
    for row in rows:
        repeated = len(row.prompts) - len({p.key for p in row.prompts})
        if repeated:
            scores.notes.append(
                f"{repeated} of the {len(row.prompts)} images repeat the prompt and seed of "
                f"another and are the same picture (row {row.row})."
            )
            break  # rows share their prompts; one sentence is enough
    return scores
