"""SIGKILL at named points and at random moments: the same command then completes, repaints nothing
that was finished, and ends in the same files."""

import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
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

    def run(self, results, store, kill=None):
        request = {"results": str(results), "store": store, "kill": kill}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def victim(tmp_path_factory):
    with (tmp_path_factory.mktemp("victim") / "stderr").open("w") as errors:
        found = Victim(errors)
        yield found
        found.process.stdin.close()
        found.process.wait(timeout=30)


@pytest.fixture(scope="module", params=["files", "zip"])
def undisturbed(request, victim, tmp_path_factory):
    results = tmp_path_factory.mktemp("undisturbed")
    answer = victim.run(results, request.param)
    assert answer["code"] == 0
    assert answer["calls"]["painted"] == len(images(results)) == 6
    assert bool(list(results.rglob("*.zip"))) == (request.param == "zip")
    return results, answer, request.param


def images(results):
    """The whole PNGs, loose or packed: bytes by painter and name."""
    found = {}
    for path in (results / "images").rglob("*.png"):
        found[path.parent.parent.name, path.name] = path.read_bytes()
    for path in (results / "images").rglob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            found |= {(path.parent.name, name): archive.read(name) for name in archive.namelist()}
    return {key: png for key, png in found.items() if png.endswith(b"IEND\xaeB`\x82")}


def contents(results):
    """What must not depend on interruptions: images, figures, tables and features, by name."""
    folder = results / "toy" / "compare_methods"
    found = images(results)
    for name in ("metrics.json", "per_image.csv", "table.csv", "manifest.json"):
        found[name] = (folder / name).read_bytes()
    for space in sorted((results / "features").iterdir()):
        for keys in space.rglob("*.txt"):
            rows = np.load(keys.with_suffix(".npy"))
            for key, row in zip(keys.read_text().split(), rows, strict=True):
                found[space.name, key] = row.tobytes()
    return found


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
    results, whole, store = undisturbed
    answer = victim.run(folder, store, kill)
    finished = images(folder)
    again = victim.run(folder, store)
    assert again["code"] == 0, kill
    repainted = again["calls"].get("painted", 0)
    assert repainted == whole["calls"]["painted"] - len(finished), kill
    ours, theirs = contents(folder), contents(results)
    assert set(ours) == set(theirs), kill
    assert [name for name in ours if ours[name] != theirs[name]] == [], kill
    assert not list(folder.rglob("*.zip")) or not list((folder / "images").rglob("*.png")), kill
    shutil.rmtree(folder)
    return answer["killed"]


def killed_at_moments(count, victim, undisturbed, tmp_path, capsys):
    _, answer, store = undisturbed
    drawn = moments(count, answer["calls"], answer["seconds"], seed=count)
    killed = [survive(victim, undisturbed, tmp_path / str(i), kill)
              for i, kill in enumerate(drawn)]  # fmt: skip
    assert all(killed[::2])  # named points are always reached
    assert sum(killed) > 0.6 * count
    with capsys.disabled():
        print(f" store={store}: killed at {sum(killed)} of {count} moments, each time completed ")


def test_killed_at_a_few_moments(victim, undisturbed, tmp_path, capsys):
    killed_at_moments(6, victim, undisturbed, tmp_path, capsys)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_killed_at_many_moments(victim, undisturbed, tmp_path, capsys):
    killed_at_moments(50, victim, undisturbed, tmp_path, capsys)
