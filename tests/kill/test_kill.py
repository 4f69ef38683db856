"""SIGKILL at named points and at random moments: the same command then completes, repaints nothing
that was finished, and ends in the same files."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT

VICTIM = Path(__file__).with_name("victim.py")


class Victim:
    """`victim.py`, which forks a child for every request."""

    def __init__(self, errors):
        self.process = subprocess.Popen(
            [sys.executable, str(VICTIM)], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def run(self, results, kill=None):
        self.process.stdin.write(json.dumps({"results": str(results), "kill": kill}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    with (tmp_path_factory.mktemp("victim") / "stderr").open("w") as errors:
        found = Victim(errors)
        yield found
        found.process.stdin.close()
        found.process.wait(timeout=30)


@pytest.fixture(scope="module")
def undisturbed(victim, tmp_path_factory):
    results = tmp_path_factory.mktemp("undisturbed")
    answer = victim.run(results)
    assert answer["code"] == 0
    return results, answer


def contents(results):
    """What must not depend on interruptions: images, figures, tables and features, by name."""
    folder = results / "toy" / "compare_methods"
    found = {p.relative_to(results): p.read_bytes() for p in (results / "images").rglob("*.png")}
    for name in ("metrics.json", "per_image.csv", "table.csv", "manifest.json"):
        found[name] = (folder / name).read_bytes()
    for space in sorted((results / "features").iterdir()):
        for keys in space.rglob("*.txt"):
            rows = np.load(keys.with_suffix(".npy"))
            for key, row in zip(keys.read_text().split(), rows, strict=True):
                found[space.name, key] = row.tobytes()
    return found


def finished(results):
    return {p: p.stat().st_mtime_ns for p in (results / "images").rglob("*.png") if whole(p)}


def whole(path):
    return path.read_bytes().endswith(b"IEND\xaeB`\x82")


def moments(count, calls, seconds, seed):
    """Half of them at a named point's n-th call, half after a random time."""
    drawn, rng = [], random.Random(seed)
    points = sorted(calls)
    for i in range(count):
        if i % 2 == 0:
            point = points[i // 2 % len(points)]
            drawn.append({"at": point, "call": rng.randint(1, calls[point])})
        else:
            drawn.append({"after": rng.uniform(0.05, 0.95) * seconds})
    return drawn


def survive(victim, undisturbed, folder, kill):
    """Run with a kill, then without; returns whether it came in time to kill anything."""
    results, _ = undisturbed
    answer = victim.run(folder, kill)
    before = finished(folder)
    again = victim.run(folder)
    assert again["code"] == 0, kill
    assert before.items() <= finished(folder).items(), kill
    ours, theirs = contents(folder), contents(results)
    assert set(ours) == set(theirs), kill
    assert [name for name in ours if ours[name] != theirs[name]] == [], kill
    shutil.rmtree(folder)
    return answer["killed"]


def killed_at_moments(count, victim, undisturbed, tmp_path):
    _, answer = undisturbed
    drawn = moments(count, answer["calls"], answer["seconds"], seed=count)
    killed = [survive(victim, undisturbed, tmp_path / str(i), kill)
              for i, kill in enumerate(drawn)]  # fmt: skip
    assert all(killed[::2])  # named points are always reached
    assert sum(killed) > 0.8 * count


def test_killed_at_ten_moments(victim, undisturbed, tmp_path):
    killed_at_moments(10, victim, undisturbed, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_killed_at_a_hundred_moments(victim, undisturbed, tmp_path):
    killed_at_moments(100, victim, undisturbed, tmp_path)
