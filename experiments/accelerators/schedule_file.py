"""A schedule as a file that any run can use: `method.refresh=<file>.json`.

{"name": "found 11", "evaluations": 51, "steps": [0, 3, ...]}            all blocks alike
{"name": "found 11 by block", "evaluations": 51, "blocks": {name: [0, ...]}}

Further keys (what it was found from, its cost) are for readers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import catome
from experiments.common.files import write_json


def write_schedule(path: Path, name: str, evaluations: int, steps: Any, **more: Any) -> None:
    """Args: steps: a list of evaluations, or {block name: list}."""
    kind = "blocks" if isinstance(steps, dict) else "steps"
    write_json(path, {"name": name, "evaluations": evaluations, kind: steps, **more})


def read_schedule(path: str) -> tuple[catome.Checkpoints | catome.ByBlock, str]:
    """The schedule in a file and its name.

    Raises:
        ValueError: no such file, or it holds no schedule.
    """
    allowed = (
        "must be a file with name, evaluations, and steps (a list) or blocks (a list by block name)"
    )
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        name, evaluations = str(content["name"]), content["evaluations"]
        if "steps" in content:
            return catome.Checkpoints(content["steps"], evaluations), name
        blocks = content["blocks"].items()
        return catome.ByBlock({k: catome.Checkpoints(v, evaluations) for k, v in blocks}), name
    except OSError:
        raise ValueError(f"refresh={path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        raise ValueError(f"refresh={path}: {allowed}") from None
