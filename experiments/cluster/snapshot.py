"""The code as it was submitted, kept for jobs that wait in a queue."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from experiments.common import environment
from experiments.common.errors import bad
from experiments.common.files import digest, file_sha256, write_json
from experiments.common.paths import ROOT


def take(folder: Path) -> Path:
    """Copy the checkout's tracked files, as they are now, into a folder under `folder` that is
    named after their contents; a copy that is there already is used again.

    Raises:
        ConfigError: the code does not lie in a git checkout.
    """
    try:
        listed = environment.git("ls-files", "-z", "--full-name", ":/").split("\0")
    except (OSError, subprocess.CalledProcessError) as error:
        allowed = "needs a git checkout: jobs run a copy of its tracked files"
        raise bad("hydra/launcher", "slurm", allowed) from error
    names = [name for name in listed if name and (ROOT / name).is_file()]
    contents = digest([[name, file_sha256(ROOT / name)] for name in names])
    copy = folder / contents
    if (copy / environment.SNAPSHOT).is_file():
        return copy
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    # Written last: a copy that has it is whole.
    write_json(copy / environment.SNAPSHOT, {**environment.code(), "snapshot": contents})
    return copy


def described(copy: Path) -> str:
    """One line for a log."""
    code = environment.code()
    changed = f", {code['changed_files']} files changed" if code.get("changed_files") else ""
    return f"jobs run the code as it is now: {copy} (commit {code.get('commit')}{changed})"


def setup_lines(copy: Path) -> list[str]:
    """Shell lines that make a job import the copy, wherever it is started; after it, what the
    user's own PYTHONPATH names, such as methods of their own."""
    own = [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    found = os.pathsep.join([str(copy.resolve()), *own])
    return ["export PYTHONSAFEPATH=1", f"export PYTHONPATH={shlex.quote(found)}"]
