"""Which works a run's table used, by keys of `references.bib`."""

from __future__ import annotations

import re
from pathlib import Path

from experiments.report.run_folder import Row, Run, read_run

REFERENCES = Path(__file__).with_name("references.bib")
PAINTED = ("rombach2022latent", "vonplaten2022diffusers")
SCHEDULERS = {
    "plms": "liu2022pseudo",
    "ddim": "song2021ddim",
    "dpm++2m": "lu2022dpmsolverpp",
    "euler": "karras2022elucidating",
}
PROMPTS = {"coco": "lin2014coco", "imagenet": "russakovsky2015imagenet"}
INCEPTION = ("szegedy2016rethinking", "obukhov2020torchfidelity")
PRC_NETWORKS = {"vgg16": "simonyan2015very", "inception": "szegedy2016rethinking"}
METRICS = {
    "fid": ("heusel2017gans", *INCEPTION),
    "fid_pytorch_fid": ("heusel2017gans", "szegedy2016rethinking", "seitzer2020fid"),
    "fid_to_baseline": ("heusel2017gans", *INCEPTION),
    "kid": ("binkowski2018demystifying", *INCEPTION),
    "isc": ("salimans2016improved", *INCEPTION),
    "prc": ("kynkaanniemi2019improved", "obukhov2020torchfidelity"),
    "fd_clip": ("heusel2017gans", "radford2021clip"),
    "fd_dinov2": ("heusel2017gans", "oquab2024dinov2"),
    "fd_toy": ("heusel2017gans",),
    "clip_score": ("hessel2021clipscore", "radford2021clip"),
    "clip_toy": ("hessel2021clipscore", "radford2021clip"),
    "lpips": ("zhang2018lpips",),
    "ssim": ("wang2004ssim",),
}


def references() -> dict[str, str]:
    """{key: entry} of the .bib file, in its order."""
    text = REFERENCES.read_text(encoding="utf-8")
    entries = re.split(r"\n(?=@)", text)
    found = {}
    for entry in entries:
        named = re.match(r"@\w+\{([^,]+),", entry)
        if named:
            found[named[1]] = entry.strip()
    return found


def keys_of(run: Run) -> list[str]:
    """Keys of what a run used, in the order of the .bib file."""
    used: set[str] = set()
    for row in run.rows:
        used.update(_of_row(row))
    kind = (run.manifest.get("rule") or {}).get("kind")
    if kind in PROMPTS:
        used.add(PROMPTS[kind])
    for column in run.quality_columns():
        used.update(METRICS.get(run.metric(column), ()))
        if run.metric(column) in ("precision", "recall"):
            used.update(METRICS["prc"])
            used.add(PRC_NETWORKS["vgg16" if "VGG-16" in column else "inception"])
    return [key for key in references() if key in used]


def _of_row(row: Row) -> set[str]:
    settings = row.record.get("settings") or {}
    used = set(PAINTED) if settings else set()  # of somebody else's pictures nothing is known
    scheduler = settings.get("generation.scheduler")
    if scheduler in SCHEDULERS:
        used.add(SCHEDULERS[scheduler])
    if (settings.get("generation.guidance_scale") or 0) > 1:
        used.add("ho2022guidance")
    columns = row.columns
    if columns.get("threshold") is not None or columns.get("ratio") is not None:
        used |= {"bolya2023tome", "bolya2023tomesd"}
        cached = columns.get("caching") not in (None, "—", "every step")
        if cached or columns.get("threshold") is not None:
            used.add("saghatchian2025catome")
    return used


def bibtex(folder: Path) -> str:
    """The entries of what a run used, in the order of the .bib file."""
    entries = references()
    return "\n\n".join(entries[key] for key in keys_of(read_run(folder)))
