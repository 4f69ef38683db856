"""How tests run the command as users do."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Fewer steps, prompts and timed generations than any default: what a command does, quickly.
QUICK = [
    "generation.steps=4",
    "prompts.limit=2",
    "prompts.scenes=8",
    "timing.repeats=1",
    "timing.warmup=0",
    "metrics.reference_scenes=32",
]


def run_command(*arguments: str, cwd: Path = ROOT, env: dict | None = None, timeout: int = 400):
    """`python run.py ...` as a user types it."""
    return subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
