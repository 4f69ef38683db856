"""What each method paints from fixed seeds, coarsely, and the revision that it declared then.

python tests/revisions.py     writes revisions.json anew, after a revision was raised
"""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("revisions.json")
sys.path.insert(0, str(ROOT))

from hydra import compose, initialize_config_dir  # noqa: E402

from experiments.accelerators.build import build_method  # noqa: E402
from experiments.models import pipelines  # noqa: E402
from experiments.painting import pipeline_call  # noqa: E402
from experiments.painting.store import Prompt  # noqa: E402

NAMES = sorted(path.stem for path in (ROOT / "configs" / "method").glob("*.yaml"))
NAMES.remove("token_merging")  # the arguments that the others choose among
OVERRIDES = ["generation.steps=4", "device=cpu"]
PROMPTS = [Prompt("a large red ring on a gray background", 3), Prompt("a small blue cross", 4)]
CELLS = 16  # a side, over which a picture is averaged


def painted(name: str) -> tuple[int, np.ndarray]:
    """A method's revision and (images, CELLS, CELLS, RGB) of what it paints, from 0 to 1."""
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", [f"method={name}", *OVERRIDES])
    pipe, method = pipelines.load(cfg), build_method(cfg)
    with method.attach(pipe):
        pictures = (
            np.stack([np.asarray(p) for p in pipeline_call.generate(pipe, cfg, PROMPTS)]) / 255
        )
    count, height, width, rgb = pictures.shape
    cells = pictures.reshape(count, CELLS, height // CELLS, CELLS, width // CELLS, rgb)
    return method.revision, cells.mean(axis=(2, 4))


def main() -> None:
    found = {}
    for name in NAMES:
        revision, picture = painted(name)
        found[name] = {"revision": revision, "picture": picture.round(4).ravel().tolist()}
    lines = ",\n".join(f'"{name}": {json.dumps(facts)}' for name, facts in found.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
