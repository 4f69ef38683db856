"""Pictures that somebody else painted, scored under a protocol of this project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.common import environment
from experiments.common.errors import bad
from experiments.common.files import digest, write_json, write_text
from experiments.common.paths import ROOT, locate
from experiments.common.requirements import require_writable
from experiments.metrics.entry import evaluate_rows
from experiments.metrics.registry import METRICS, TO_REFERENCE
from experiments.metrics.settings import check_metrics
from experiments.models.device import device
from experiments.painting.store import Painted
from experiments.report.entry import write_report
from experiments.runner.by_protocol import compare_protocols
from experiments.runner.foreign import load_rows
from experiments.settings import protocols

NEEDS = {
    "prompts": [name for name, metric in METRICS.items() if metric.prompts],
    "baseline": [name for name, metric in METRICS.items() if metric.baseline],
    "reference": TO_REFERENCE,
}


def score(options: DictConfig) -> tuple[str, Path]:
    """Measure, write and report; the printed table and the folder with everything.

    Raises:
        ConfigError: a setting that cannot be.
        ValueError: an image that cannot be read or has another size than its pair.
    """
    given = options.images if OmegaConf.is_list(options.images) else [options.images]
    folders = [Path(locate(str(folder))) for folder in given]
    for folder in folders:
        if not folder.is_dir():
            raise bad("images", folder, "no such folder")
    baseline, prompts_file = (
        None if options[key] is None else Path(locate(str(options[key])))
        for key in ("baseline", "prompts")
    )
    metrics, notes = choose_metrics(options)
    check_metrics(metrics)
    results, where = Path(str(options.results)), str(device(options))
    rows, base, rule, more = load_rows(folders, baseline, prompts_file, results)
    notes = more + notes
    listed = [[row.painter, [[p.text, p.seed] for p in row.prompts]] for row in rows]
    out = options.out or results / "foreign" / digest([listed, _json(metrics)])
    out = Path(str(out))
    require_writable("out", out)
    scores = evaluate_rows(rows, base, metrics, results, where)
    scores.save(out)
    for row in rows:
        write_json(out / "rows" / f"{row.row}.json", record(row))
    paths = {row.row: [os.path.relpath(path, out) for path in row.images] for row in rows}
    write_json(out / "painted.json", paths)
    # Seeds are not known, so that the manifest lists no prompts; per_image.csv does.
    write_json(out / "manifest.json", {"rule": rule, "digest": digest(listed)} if rule else {})
    write_json(out / "experiment.json", experiment(options, metrics, rows, base, notes))
    settings = OmegaConf.to_yaml(OmegaConf.merge(options, {"metrics": _json(metrics)}))
    write_text(out / "config.yaml", settings)
    return write_report(out), out


def choose_metrics(options: DictConfig) -> tuple[dict[str, Any], list[str]]:
    """The section `metrics` with what can be measured, and a note for what cannot.

    The standard section's keys are replaced by the protocol's, those by the command's.
    """
    layers = [OmegaConf.load(ROOT / "configs" / "metrics" / "standard.yaml")]
    if options.protocol is not None:
        layers.append(protocols.load(options.protocol).metrics)
    layers.append(options.metrics)
    layers += [{key: options[key]} for key in ("names", "reference") if options[key] is not None]
    metrics = OmegaConf.to_container(OmegaConf.merge(*layers), resolve=True)
    names = metrics["names"]
    if not isinstance(names, list):
        raise bad("names", names, "must be a list of metrics, such as [clip_score,psnr]")
    inputs = {**options, "reference": metrics["reference"]}
    notes = []
    for key, users in NEEDS.items():
        lost = [name for name in names if name in users]
        if inputs[key] is None and lost:
            notes.append(f"Left out, as {key}= was not given: {', '.join(lost)}.")
            names = [name for name in names if name not in lost]
    if not names:
        allowed = f"nothing is left to measure; give {', '.join(NEEDS)} or other names"
        raise bad("names", metrics["names"], allowed)
    return {**metrics, "names": names}, notes


def record(row: Painted) -> dict[str, Any]:
    """What the report reads of a row; how it was painted is not known."""
    return {
        "row": row.row,
        "status": "done",
        "error": None,
        "columns": {"method": row.row},
        "painter": row.painter,
        "images": len(row.images),
        "merged_share": None,
        "order_dependent": False,
        "settings": {},
    }


def experiment(
    options: DictConfig,
    metrics: dict[str, Any],
    rows: list[Painted],
    baseline: Painted | None,
    notes: list[str],
) -> dict[str, Any]:
    """`experiment.json`, with the protocol's name and where this departs from it."""
    names = [row.row for row in rows]
    cfg: dict[str, Any] = {"metrics": _json(metrics)}
    if options.protocol is not None:
        cfg["protocol"] = protocols.load(options.protocol).protocol
    departures = protocols.departures(OmegaConf.create(cfg), len(rows[0].images))
    unknown = protocols.unknown_fields(OmegaConf.create(cfg))
    if unknown:
        notes = [*notes, f"Not known of {options.protocol}: {', '.join(unknown)}."]
    return {
        "name": "foreign",
        "title": options.title or f"Images of {', '.join(names)}",
        "benchmark": "foreign",
        "layout": "methods",
        "swept": None,
        "published": None,
        "baseline": None if baseline is None else baseline.row,
        "rows": names,
        "apart": [],
        "varied": [],
        "notes": notes,
        "protocol": options.protocol,
        "departures": departures,
        "code": environment.code(),
    }


def _json(metrics: dict[str, Any]) -> dict[str, Any]:
    return {k: str(v) if isinstance(v, Path) else v for k, v in metrics.items()}


def score_under_each(options: DictConfig) -> str:
    """`score` under several protocols, with a table of what each says."""
    given = OmegaConf.to_container(options, resolve=True)
    out = Path(str(options.out or Path(str(options.results)) / "foreign" / digest(given)))
    found = {
        name: score(OmegaConf.merge(options, {"protocol": name, "out": str(out / name)}))
        for name in options.protocol
    }
    folders = {name: folder for name, (_, folder) in found.items()}
    tables = [table for table, _ in found.values()] + [compare_protocols(folders, out)]
    return "\n" + "\n\n".join(tables) + f"\n\n{out}"
