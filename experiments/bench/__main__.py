"""Token merging against `tomesd`, `ca_tome` and no merging: what it costs and saves.

python -m experiments.bench full=false          what `make bench` runs
python -m experiments.bench full=true           what `make bench-full` runs
python -m experiments.bench groups=[operations,block] device=cuda dtype=float16
python -m experiments.bench groups=[block] profile=true    and a torch.profiler trace

groups   operations, block, unet, cost, adaptive, adaptive_cost, nothing, compiled, ragged,
         generation, memory, gpu; null: all that the device can
turns    how often variants take turns; null: a cell's own number
out      where cells, `bench.json` and `bench.md` go; a finished cell is not measured again and
         stays in the tables
device
dtype    of U-Nets and blocks; auto: bfloat16 where the device has instructions for it, else float32
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from experiments.bench.cells import GROUPS, MEASURE, Cell, cells
from experiments.bench.tables import to_markdown
from experiments.common import command, environment
from experiments.common.command import command_options
from experiments.common.errors import bad
from experiments.common.files import digest, read_json, write_json, write_text
from experiments.common.requirements import require_choice, require_integer, require_writable
from experiments.models.device import device
from experiments.settings.choices import DTYPES

OPTIONS = {
    "groups": None, "full": False, "turns": None, "device": "auto", "dtype": "auto",
    "out": "results/bench", "profile": False,
}  # fmt: skip


def bench(argv: list[str]) -> str:
    """Measure what is missing; returns the tables."""
    options = parse(argv)
    where = device(options)
    if options.dtype == "auto":
        options.dtype = fast_dtype(where)
    # Each cell has a dtype of its own.
    described = {k: v for k, v in environment.describe(where, "", "fused").items() if k != "dtype"}
    if options.groups == ["gpu"] and where.type != "cuda":
        raise bad("device", options.device, "groups=[gpu] needs CUDA")
    listed = chosen(options, where)
    if not listed:
        raise bad("groups", ", ".join(options.groups), "is measured with full=true only")
    out = Path(str(options.out))
    require_writable("out", out)
    for cell in listed:
        if kept(cell, options, described, out) is None:
            found = measured(cell, options, where, out)
            found["measured_on"] = settings(cell, options, described)
            write_json(cell_file(cell, out), found)
        # After each, so that a run that is stopped leaves the table of what it measured.
        finished = [kept(c, options, described, out) for c in cells(options.dtype)]
        finished = [found for found in finished if found is not None]
        write_json(out / "bench.json", {"environment": described, "cells": finished})
        text = to_markdown(finished, described)
        write_text(out / "bench.md", text + "\n")
    return f"\n{text}\n\n{out}"


def cell_file(cell: Cell, out: Path) -> Path:
    return out / "cells" / f"{cell.name.replace(' ', '_')}.json"


def settings(cell: Cell, options: DictConfig, described: dict[str, Any]) -> str:
    return digest({"environment": described, "turns": options.turns or cell.turns})


def kept(
    cell: Cell, options: DictConfig, described: dict[str, Any], out: Path
) -> dict[str, Any] | None:
    """A cell that was measured before on the same machine with as many turns, also one that is not
    asked for now."""
    path = cell_file(cell, out)
    if not path.is_file():
        return None
    found = read_json(path)
    return found if found["measured_on"] == settings(cell, options, described) else None


def parse(argv: list[str]) -> DictConfig:
    options = command_options(argv, OPTIONS)
    require_choice("dtype", options.dtype, ("auto", *DTYPES))
    require_integer("turns", options.turns, 1, optional=True)
    for key in ("full", "profile"):
        if not isinstance(options[key], bool):
            raise bad(key, options[key], "must be true or false")
    if options.groups is not None and not OmegaConf.is_list(options.groups):
        raise bad("groups", options.groups, f"must be a list of {', '.join(GROUPS)}")
    for group in options.groups or []:
        require_choice("groups", group, GROUPS)
    return options


def fast_dtype(where: torch.device) -> str:
    """CPUs without bfloat16 instructions convolve in it a hundred times slower than in float32."""
    has = torch.cpu.get_capabilities()
    instructions = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
    if where.type == "cpu" and not any(has.get(name) for name in instructions):
        return "float32"
    return "bfloat16"


def chosen(options: DictConfig, where: torch.device) -> list[Cell]:
    groups = options.groups or GROUPS
    found = [c for c in cells(options.dtype) if c.group in groups and (options.full or not c.full)]
    return [c for c in found if c.group != "gpu" or where.type == "cuda"]


def measured(cell: Cell, options: DictConfig, where: torch.device, out: Path) -> dict[str, Any]:
    turns = options.turns or cell.turns
    measure = MEASURE[cell.group]
    if options.profile:
        path = out / "traces" / f"{cell.name.replace(' ', '_')}.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with torch.profiler.profile() as profile:
            seconds, facts = measure(where, turns, *cell.settings)
        profile.export_chrome_trace(str(path))
    else:
        seconds, facts = measure(where, turns, *cell.settings)
    return {
        "group": cell.group,
        "settings": list(cell.settings),
        "turns": len(next(iter(seconds.values()), [])),
        "seconds": seconds,
        "facts": facts,
    }


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
