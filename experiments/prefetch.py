"""Fetch what a benchmark needs, on a machine with network, for nodes without.

    python -m experiments.prefetch benchmark=coco2017_5k dry_run=true
    python -m experiments.prefetch benchmark=coco2017_5k data=/data

Takes the keys of `run.py` and dry_run: says what and how large, then (unless dry_run=true)
downloads what is missing. Models go to the hub's cache, weights of metrics to torch's hub folder,
data to `data`; a broken download goes on when the command is given again. ImageNet has to be
fetched by hand: its terms ask for a registration.
"""

from __future__ import annotations

import sys

from experiments.common import command
from experiments.common.errors import bad
from experiments.settings.messages import compose_config


def prefetch(argv: list[str]) -> str:
    """Print the list, then fetch what is missing."""
    dry = [word.split("=", 1)[1] for word in argv if word.startswith("dry_run=")]
    if dry and dry[-1] not in ("true", "false"):
        raise bad("dry_run", dry[-1], "must be true or false")
    cfg = compose_config([word for word in argv if not word.startswith("dry_run=")])
    from experiments.setup.prefetch import look_at, needed

    missing = look_at(needed(cfg))
    if dry and dry[-1] == "true":
        return f"{len(missing)} to fetch"
    for item in missing:
        item.fetch()
        print(f"{item.what}: fetched", flush=True)
    return "everything is there; on nodes without network set HF_HUB_OFFLINE=1"


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, prefetch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
