"""What is worth keeping of a run: figures, features and the report, no image files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from experiments.common.files import read_json, write_atomically
from experiments.metrics.context import painted_feature_array
from experiments.metrics.scores import Scores
from experiments.painting.store import Painted, Prompt
from experiments.report.run_folder import existing_run

FILES = (
    "config.yaml",
    "experiment.json",
    "manifest.json",
    "metrics.json",
    "pair_overlap.csv",
    "protocol.json",
    "per_image.csv",
    "report.html",
    "similarity.csv",
    "table.csv",
    "table.md",
    "table.tex",
    "timing.json",
)


def publish(run: Path, out: Path, results: Path) -> list[Path]:
    """Copy from `run` and the feature cache under `results`; returns the files written."""
    existing_run(run)
    written = []

    def copy(source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        written.append(target)

    for name in FILES:
        if (run / name).is_file():
            copy(run / name, out / name)
    for folder in ("plots", "schedules"):
        for source in sorted((run / folder).glob("*.*")):
            copy(source, out / folder / source.name)
    measured = Scores.load(run).per_image if (run / "metrics.json").is_file() else None
    painted = read_json(run / "painted.json") if (run / "painted.json").is_file() else {}
    for source in sorted((run / "rows").glob("*.json")):
        copy(source, out / "rows" / source.name)
        record = read_json(source)
        name = record["row"]
        if measured is None or name not in painted:
            continue
        lines = measured[measured["row"] == name]
        prompts = tuple(map(Prompt, lines["prompt"], lines["seed"]))
        row = Painted(
            name, record.get("painter", name), prompts, tuple(run / p for p in painted[name])
        )
        for folder in feature_folders(results):
            features = painted_feature_array(row, folder)
            if features is not None:
                target = out / "features" / folder.name / f"{source.stem}.npz"
                write_features(target, prompts, features)
                written.append(target)
    return written


def feature_folders(results: Path) -> list[Path]:
    """One a kind of features; the audit's facts about images are none."""
    folders = (results / "features").glob("*")
    return sorted(p for p in folders if p.is_dir() and p.name != "audit")


def write_features(path: Path, prompts: tuple[Prompt, ...], features: np.ndarray) -> None:
    """`texts` and `seeds` of the images and their `features`, (n, d) float32, in one npz."""
    texts, seeds = [p.text for p in prompts], [p.seed for p in prompts]

    def write(beside: Path) -> None:
        with beside.open("wb") as file:  # np.savez appends .npz to a path, not to an open file
            np.savez(file, texts=np.array(texts, np.str_), seeds=seeds, features=features)

    write_atomically(path, write)
