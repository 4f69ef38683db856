"""BibTeX of every method, model, data set and metric that a run's table used.

    python -m experiments.cite run=results/runs/toy/ablation_cache

Prints entries of `experiments/report/references.bib`; `run` is a folder with an `experiment.json`.
"""

from __future__ import annotations

import sys

from experiments.common import command


def cite(argv: list[str]) -> str:
    options = command.command_options(argv, {"run": None})
    from experiments.report.citations import bibtex
    from experiments.report.run_folder import existing_run

    return bibtex(existing_run(options.run))


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, cite)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
