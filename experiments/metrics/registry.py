"""All metrics, each with what it needs and what it is: the one place that lists them.

A metric's file in this room has `measure(context)`, which adds its figures, and `network(context)`
where it takes features from a network.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric of the section `metrics`.

    Attributes:
        name: in `metrics.names`; the metric's file has it too.
        cites: keys of the works to be cited with it.
        reference: what of `metrics.reference` it compares with: "statistics" suffice, or it needs
            "images", or None.
        prompts, baseline: whether it needs the prompts, or the baseline's images.
        distance: whether it is a Fréchet distance, which few images bias.
        files: keys of `metrics` that may name a file of weights.
        model: key of `metrics` that names a model of Transformers, and its class.
        scorer: whether it uses the toy world's CLIPModel, `metrics.scorer`.
    """

    name: str
    cites: tuple[str, ...] = ()
    reference: str | None = None
    prompts: bool = False
    baseline: bool = False
    distance: bool = False
    files: tuple[str, ...] = ()
    model: tuple[str, str] | None = None
    scorer: bool = False


INCEPTION = ("szegedy2016rethinking", "obukhov2020torchfidelity")
CLIP_SCORE = ("hessel2021clipscore", "radford2021clip")
METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "fid", ("heusel2017gans", *INCEPTION), reference="statistics", distance=True,
            files=("inception_weights",),
        ),
        Metric(
            "fid_pytorch_fid", ("heusel2017gans", "szegedy2016rethinking", "seitzer2020fid"),
            reference="statistics", distance=True, files=("pytorch_fid_weights",),
        ),
        Metric(
            "fd_clip", ("heusel2017gans", "radford2021clip"), reference="statistics",
            distance=True, model=("fd_clip_model", "CLIPModel"),
        ),
        Metric(
            "fd_dinov2", ("heusel2017gans", "oquab2024dinov2"), reference="statistics",
            distance=True, model=("dinov2_model", "Dinov2Model"),
        ),
        Metric(
            "kid", ("binkowski2018demystifying", *INCEPTION), reference="images",
            files=("inception_weights",),
        ),
        Metric(
            "prc", ("kynkaanniemi2019improved", "obukhov2020torchfidelity"), reference="images",
            files=("inception_weights", "vgg16_weights"),
        ),
        Metric("isc", ("salimans2016improved", *INCEPTION), files=("inception_weights",)),
        Metric("fd_toy", ("heusel2017gans",), distance=True, scorer=True),
        Metric("clip_score", CLIP_SCORE, prompts=True, model=("clip_model", "CLIPModel")),
        Metric("clip_toy", CLIP_SCORE, prompts=True, scorer=True),
        Metric(
            "fid_to_baseline", ("heusel2017gans", *INCEPTION), baseline=True, distance=True,
            files=("inception_weights",),
        ),
        Metric("psnr", baseline=True),
        Metric("ssim", ("wang2004ssim",), baseline=True),
        Metric("lpips", ("zhang2018lpips",), baseline=True, files=("lpips_backbone",)),
    )
}  # fmt: skip
DISTANCES = tuple(name for name, metric in METRICS.items() if metric.distance)
TO_REFERENCE = tuple(name for name, metric in METRICS.items() if metric.reference)
# {key of `metrics` that may name a file of weights: metrics that use it}
FILES = {
    key: tuple(name for name, metric in METRICS.items() if key in metric.files)
    for key in ("inception_weights", "pytorch_fid_weights", "vgg16_weights", "lpips_backbone")
}
# {key of `metrics` that names a model of Transformers: (metric that uses it, the model's class)}
MODELS = {m.model[0]: (m.name, m.model[1]) for m in METRICS.values() if m.model is not None}
