"""Look at a machine before a run: what is there, what is missing, and the remedy.

    python -m experiments.doctor
    python -m experiments.doctor benchmark=coco2017_5k model.path=/models/sd15

Takes the keys of `run.py`; prints a line for each check and ends with 1 if one failed.
"""

from __future__ import annotations

import sys

from experiments.common import command
from experiments.common.errors import ConfigError
from experiments.settings.messages import compose_config


def doctor(argv: list[str]) -> str:
    """The report; ConfigError after printing it where a check failed."""
    cfg = compose_config(argv)
    from experiments.setup.doctor import examine

    failed = 0
    for finding in examine(cfg):
        print(finding, flush=True)
        failed += finding.remedy is not None
    if failed:
        raise ConfigError(f"{failed} checks failed")
    return "all checks passed"


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, doctor, bare=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
