"""The script that measures what the runner costs, as users run it."""

import re
import subprocess
import sys

import pytest
from commands import QUICK, ROOT

SCRIPT = [sys.executable, ROOT / "scripts" / "overhead.py"]


def overhead(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([*SCRIPT, *arguments], capture_output=True, text=True, cwd=ROOT)


def test_the_runner_is_compared_with_a_bare_loop():
    done = overhead("turns=2", *QUICK, "prompts.limit=2")
    assert done.returncode == 0, done.stderr
    number = r"(\d+\.\d+)"
    parts = (
        rf"runner / bare: {number} .*2 turns of 2 images; {number} and {number} s an image\n"
        rf"outside of the pipeline's calls: bare {number}, runner {number} s an image; "
        rf"writing beside painting {number} s: at most {number}\n"
    )
    found = re.fullmatch(parts, done.stdout)
    assert found, done.stdout
    _, bare, runner, bare_beside, runner_beside, writing, most = map(float, found.groups())
    assert 0 < bare_beside < bare
    assert 0 < runner_beside < runner
    assert writing > 0
    expected = 1 + (runner_beside + writing - bare_beside) / bare
    assert most == pytest.approx(expected, abs=0.01 / bare)  # of rounded figures


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["turns=no"], "error: turns=no: the first argument must be turns=1, 2, ..."),
        (["prompts.limit=1"], "error: prompts.limit=1: the first argument must be turns=1, 2, ..."),
        (["turns=1", "benchmark=imagenet"], "error: benchmark=imagenet: must be one of "),
        (["turns=1", "generation.steps=0"], "error: generation.steps=0: "),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    done = overhead(*arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(message)
