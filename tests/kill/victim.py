"""A process that imports everything once and then forks: each child runs an experiment and may be
killed at a named point. Driven by lines of JSON on stdin, answers a line each.

Request: {"results": folder, "store": "files" | "zip",
          "kill": null | {"at": point, "call": n} | {"after": seconds}}
Answer: {"killed": bool, "code": exit code, "calls": {point: calls made}, "seconds": s}
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from hydra import compose, initialize_config_dir  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from PIL import Image  # noqa: E402

from experiments.metrics.features import FeatureStore  # noqa: E402
from experiments.painting.store import ImageStore  # noqa: E402
from experiments.runner import finish  # noqa: E402
from experiments.runner import rows as expand  # noqa: E402
from experiments.runner.one_row import run_row  # noqa: E402

OVERRIDES = [
    "+experiment=compare_methods", "rows=[baseline,ca_tome]", "prompts.limit=3",
    "prompts.scenes=8", "generation.steps=2", "generation.batch_size=1", "device=cpu",
    "metrics.reference_scenes=16", "stages=[generate,evaluate,report]",
]  # fmt: skip
# Where a child can be killed: what is replaced, and whether before it, after it or in the middle.
POINTS = {
    "mid-write": (Image.Image, "save", "middle"),
    "before fsync": (os, "fsync", "before"),
    "before rename": (os, "replace", "before"),
    "after rename": (os, "replace", "after"),
    "between image and clean-up": (Path, "unlink", "before"),
    "mid-features": (FeatureStore, "_write", "before"),
    "mid-report": (Figure, "savefig", "before"),
    "painted": (ImageStore, "write", "after"),
}


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def watch(point, victim, calls):
    """Count the calls of a point's function; kill at the one that `victim` names."""
    owner, name, when = POINTS[point]
    original = getattr(owner, name)

    def call(*arguments, **options):
        calls[point] = calls.get(point, 0) + 1
        mine = victim is not None and victim["at"] == point and victim["call"] == calls[point]
        if mine and when == "before":
            die()
        if mine and when == "middle":
            if isinstance(arguments[1], (str, Path)):  # plots are encoded in memory
                Path(arguments[1]).write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
            die()
        done = original(*arguments, **options)
        if mine:
            die()
        return done

    setattr(owner, name, call)


def experiment(results, store):
    overrides = [*OVERRIDES, f"results={results}", f"store={store}"]
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        whole = compose("config", overrides)
        names = expand.expand(whole)
        configs = {name: compose("config", [*overrides, *own]) for name, own in names.items()}
    for cfg in configs.values():
        run_row(cfg)
    finish.finish(whole, configs, {})


def child(request, answer):
    calls = {}
    victim = request["kill"] if request["kill"] and "at" in request["kill"] else None
    for point in POINTS:
        watch(point, victim, calls)
    code = 0
    try:
        experiment(request["results"], request["store"])
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        code = 1
    os.write(answer, json.dumps(calls).encode())
    os._exit(code)


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        reading, writing = os.pipe()
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            sys.stdout = sys.stderr  # the answers' channel is the parent's
            os.dup2(2, 1)
            child(request, writing)
        os.close(writing)
        if request["kill"] and "after" in request["kill"]:
            time.sleep(request["kill"]["after"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        calls = os.read(reading, 1 << 16)
        os.close(reading)
        answer = {
            "killed": os.WIFSIGNALED(status),
            "code": os.waitstatus_to_exitcode(status),
            "calls": json.loads(calls) if calls else {},
            "seconds": time.monotonic() - began,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
