"""One archive of a run for a supplement or a colleague.

    python -m experiments.export run=results/runs/toy/ablation_cache
    python -m experiments.export run=... out=supplement.zip anonymous=true images=200

Holds tables, protocol cards, per-image scores, features, plots, the page `report.html` and
thumbnails of at most `images` prompts a row. `anonymous=true` leaves out what tells who ran it:
host, user and folder names, commits, remotes and tracking entities; it fails rather than let one
through.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.common import command
from experiments.common.errors import bad
from experiments.common.requirements import require_integer

OPTIONS = {
    "run": None, "out": None, "anonymous": False, "images": 64, "results": "results/runs",
}  # fmt: skip


def export(argv: list[str]) -> str:
    options = command.command_options(argv, OPTIONS)
    require_integer("images", options.images, 0)
    if not isinstance(options.anonymous, bool):
        raise bad("anonymous", options.anonymous, "must be true or false")
    from experiments.report.archive import write_archive
    from experiments.report.run_folder import existing_run

    folder = existing_run(options.run)
    out, results = Path(str(options.out or f"{folder.name}.zip")), Path(str(options.results))
    count = write_archive(folder, out, results, options.images, options.anonymous)
    return f"{out}: {count} files, {out.stat().st_size / 2**20:.1f} MiB"


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, export)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
