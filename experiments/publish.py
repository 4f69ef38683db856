"""Copy what is worth keeping of a run into the repository: figures, not pictures.

    python -m experiments.publish run=results/runs/toy/reference out=results/toy

Takes the tables, plots, scores, timings, row records and the features that the scores were
computed from. Called again while a run goes on, it adds the rows finished since.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from omegaconf import OmegaConf

from experiments.store import read_json

FILES = (
    "config.yaml",
    "experiment.json",
    "manifest.json",
    "metrics.json",
    "per_image.csv",
    "table.csv",
    "table.md",
    "table.tex",
    "timing.json",
)


def publish(run: Path, out: Path, results: Path) -> list[Path]:
    """Copy from `run` and the feature cache under `results`; returns the files written."""
    written = []

    def copy(source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        written.append(target)

    for name in FILES:
        if (run / name).is_file():
            copy(run / name, out / name)
    for source in sorted((run / "plots").glob("*")):
        copy(source, out / "plots" / source.name)
    for source in sorted((run / "rows").glob("*.json")):
        copy(source, out / "rows" / source.name)
        painter = read_json(source).get("painter")
        for features in (results / "features").glob(f"*/{painter}.npz"):
            copy(features, out / "features" / features.parent.name / f"{source.stem}.npz")
    return written


if __name__ == "__main__":
    args = OmegaConf.merge(
        {"run": "results/runs/toy/reference", "out": "results/toy", "results": "results/runs"},
        OmegaConf.from_cli(),
    )
    for path in publish(Path(args.run), Path(args.out), Path(args.results)):
        print(path)
