"""The protocol card: what a run's numbers were computed from and on, as data and as short lines."""

from __future__ import annotations

from typing import Any

from experiments.report.run_folder import Row, Run

PAINTING = ("model.", "generation.", "dtype", "attention")


def protocol_of(run: Run) -> dict[str, Any]:
    """Everything for `protocol.json`; None where the stage that knows it was not run."""
    return {
        "prompts": {k: v for k, v in run.manifest.items() if k != "prompts"},
        "seeds": seeds_of(run),
        "painting": shared_settings(run),
        "rows": {row.name: own_settings(run, row) for row in run.rows if not row.failed},
        "painted_on": {row.name: row.record.get("painted_on") for row in run.rows},
        "departing_rows": departing_rows(run),
        "metrics": None if run.scores is None else run.scores.protocol,
        "timing": None
        if run.timing is None
        else {k: v for k, v in run.timing.items() if k != "rows"},
        "attention_kernels": {
            row.name: row.timing["attention_kernels"]
            for row in run.rows
            if row.timing.get("attention_kernels")
        },
        "protocol": run.experiment.get("protocol"),
        "departures": run.experiment.get("departures") or [],
        "code": run.experiment.get("code"),
    }


def card_of(run: Run) -> list[str]:
    """The same as lines `what: facts` to print under the table; what is unknown is left out."""
    protocol = protocol_of(run)
    lines = [
        ("Prompts", _prompts(run)),
        ("Seeds", protocol["seeds"]),
        ("Painting", _listed(protocol["painting"])),
        ("Painted on", _painted_on(run)),
        ("Attention ran as", _kernels(protocol["attention_kernels"])),
        ("Timed on", _listed((run.timing or {}).get("environment") or {})),
        ("Protocol", protocol["protocol"]),
        ("Departures from it", "; ".join(protocol["departures"])),
        ("Code", _listed(protocol["code"] or {})),
    ]
    return [f"{what}: {facts}." for what, facts in lines if facts]


def seeds_of(run: Run) -> str:
    """`7 to 134, one an image, the same in every row`."""
    prompts = run.manifest.get("prompts") or []
    if not prompts:
        return ""
    own = [p["seed"] for p in prompts if not p.get("replicate")]
    replicates = 1 + max(p.get("replicate", 0) for p in prompts)
    text = f"{min(own)} to {max(own)}, one an image"
    if replicates > 1:
        text += f", {replicates} replicates of the list with other seeds"
    settings = {row.record.get("settings", {}).get("seed") for row in run.rows if not row.failed}
    return text + (", the same in every row" if len(settings) == 1 else ", rows differ")


def shared_settings(run: Run) -> dict[str, Any]:
    """The settings of painting that all rows have in common."""
    settings = [row.record["settings"] for row in run.rows if row.record.get("settings")]
    if not settings:
        return {}
    return {
        key: value
        for key, value in settings[0].items()
        if key.startswith(PAINTING)
        and value is not None
        and all(other.get(key) == value for other in settings)
    }


def own_settings(run: Run, row: Row) -> dict[str, Any]:
    """What a row does not share with all others."""
    settings = row.record.get("settings") or {}
    others = [r.record["settings"] for r in run.rows if r.record.get("settings")]
    return {
        key: value
        for key, value in settings.items()
        if any(other.get(key) != value for other in others)
    }


def departing_rows(run: Run) -> dict[str, list[str]]:
    """{row: keys} of rows that differ from the baseline in keys which the experiment does not
    vary: records of another day, or images of another device."""
    baseline = run.baseline
    if baseline is None or not baseline.record.get("settings"):
        return {}
    varied = run.experiment.get("varied") or []
    found = {}
    for row in run.rows:
        settings = row.record.get("settings")
        if row is baseline or row.failed or not settings:
            continue
        known = baseline.record["settings"]
        keys = [
            key
            for key in sorted({*settings, *known})
            if settings.get(key) != known.get(key) and not _is_varied(key, varied)
        ]
        if row.record.get("painted_on") != baseline.record.get("painted_on"):
            keys.append("painted on")
        if keys:
            found[row.name] = keys
    return found


def _is_varied(key: str, varied: list[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in varied)


def _prompts(run: Run) -> str:
    manifest = run.manifest
    if not manifest:
        return ""
    parts = [_listed(manifest.get("rule") or {})]
    if manifest.get("digest"):
        parts.append(f"list {manifest['digest']}")
    if manifest.get("truncated"):
        parts.append(
            f"{manifest['truncated']} captions exceed {manifest.get('token_limit')} tokens and "
            "were cut"
        )
    return "; ".join(part for part in parts if part)


def _painted_on(run: Run) -> str:
    found = {
        _listed(record) for row in run.rows if (record := row.record.get("painted_on")) is not None
    }
    return "; ".join(sorted(found))


def _kernels(kernels: dict[str, list[str]]) -> str:
    by_kernels: dict[str, list[str]] = {}
    for row, names in kernels.items():
        by_kernels.setdefault(", ".join(names), []).append(row)
    if len(by_kernels) == 1:
        return next(iter(by_kernels))
    return "; ".join(f"{names} ({', '.join(rows)})" for names, rows in by_kernels.items())


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {_shown(value)}" for key, value in values.items() if value not in (None, "", {}, [])
    )


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " / ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
