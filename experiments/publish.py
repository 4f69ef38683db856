"""Copy what is worth keeping of a run into the repository: figures and the report, no image files.

    python -m experiments.publish run=results/runs/toy/reference out=results/toy

Takes the tables, report, plots, scores, timings, row records, found schedules and the features that
the scores were computed from. Called again while a run goes on, it adds the rows finished since.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.common import command

OPTIONS = {"run": "results/runs/toy/reference", "out": "results/toy", "results": "results/runs"}


def publish(argv: list[str]) -> str:
    options = command.command_options(argv, OPTIONS)
    from experiments.report import publish

    folders = (Path(str(options[key])) for key in OPTIONS)
    return "\n".join(map(str, publish.publish(*folders)))


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, publish)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
