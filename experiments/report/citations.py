"""Which works a run's table used, by keys of `references.bib`."""

from __future__ import annotations

import re
from pathlib import Path

from experiments.metrics.registry import METRICS
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
PRC_NETWORKS = {"vgg16": "simonyan2015very", "inception": "szegedy2016rethinking"}


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
        metric = run.metric(column)
        metric = "prc" if metric in ("precision", "recall") else metric
        if metric in METRICS:
            used.update(METRICS[metric].cites)
        if metric == "prc":
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
