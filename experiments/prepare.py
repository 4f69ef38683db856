"""Prepare the photographs that FID compares with.

python -m experiments.prepare imagenet src=<folder a class> out=data/imagenet/val5000
python -m experiments.prepare imagenet src=ILSVRC2012_img_val.tar \\
    labels=ILSVRC2012_devkit_t12.tar.gz out=data/imagenet/val5000
python -m experiments.prepare coco split=2017 src=val2017.zip \\
    captions=annotations/captions_val2017.json out=data/coco/val2017_512
python -m experiments.prepare statistics images=data/coco/val2017_512 out=val2017_512.npz

imagenet takes the first five images of each class in file order; coco takes a whole validation
split. `crop` (center | none), `filter` (a PIL name) and `size` (pixels | original) say how, as in
metrics.reference_size. A second call prepares only what is missing or damaged. In the folder,
`files.txt` lists rule and SHA-256 of the PNGs (another zlib may write the same pixels as other
bytes), `sources.txt` those of the photographs. `classes`, `per_class` and `expect` are for sets of
one's own. statistics writes mean and covariance of a prepared folder's features, to be given as
metrics.reference: `tool` (pytorch-fid | torch-fidelity), `weights` (a file; null downloads the
standard ones), `device`, `results`.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from PIL import Image
from yaml import YAMLError

from experiments.common import command
from experiments.common.errors import first_line
from experiments.setup import coco, imagenet, statistics
from experiments.setup.sources import PrepareError, bad, open_source
from experiments.setup.write import sha256, write_set

HOW = {"crop": "center", "filter": "lanczos", "size": 512}
CROPS = ("center", "none")
FILTERS = tuple(f.name.lower() for f in Image.Resampling)
STATISTICS = {
    "images": None, "weights": None, "tool": "pytorch-fid", "device": "cpu",
    "results": "results/runs", "out": None,
}  # fmt: skip
SETS = {
    "imagenet": {"src": None, "labels": None, "classes": 1000, "per_class": 5},
    "coco": {"src": None, "captions": None, "split": None, "expect": None},
}


def main(argv: list[str]) -> int:
    """The command; returns its exit code."""
    return command.run(argv, __doc__, run, PrepareError)


def run(argv: list[str]) -> str:
    """Prepare the set that `argv` names and say what was done."""
    name, options = argv[0], parse(argv)
    if name == "statistics":
        return statistics.measure(options)
    how = {key: options[key] for key in HOW}
    out = Path(str(options["out"])).expanduser()
    facts = {"set": name, "source": Path(str(options["src"])).name}
    with ExitStack() as stack:
        source = stack.enter_context(open_source("src", options["src"]))
        if name == "imagenet":
            devkit = options["labels"]
            labels = None
            if devkit is not None:
                labels = stack.enter_context(open_source("labels", devkit))
                facts["labels"] = labels.name
            chosen, facts["rule"] = imagenet.choose(
                source, labels, options["classes"], options["per_class"]
            )
        else:
            chosen, facts["rule"] = coco.choose(source, options["captions"], options["expect"])
            captions = Path(str(options["captions"])).expanduser()
            facts |= {"split": f"val{options['split']}",
                      "captions": f"{captions.name} (SHA-256 {sha256(captions)})"}  # fmt: skip
        made = write_set(source, chosen, out, how, facts)
    return f"{out}: {len(chosen)} images, {made} prepared now, {len(chosen) - made} intact before"


def parse(argv: list[str]) -> dict[str, Any]:
    """The command's options, checked before anything is opened."""
    name = argv[0]
    if name not in (*SETS, "statistics"):
        raise PrepareError(f"{name}: must be one of {', '.join(SETS)}, statistics")
    known = STATISTICS if name == "statistics" else {**SETS[name], **HOW, "out": None}
    try:
        given = OmegaConf.to_container(OmegaConf.from_cli(argv[1:]), resolve=True)
    except (OmegaConfBaseException, YAMLError) as error:
        raise PrepareError(f"{' '.join(argv[1:])}: {first_line(error)}") from error
    for key, value in given.items():
        if key not in known:
            raise bad(key, value, f"unknown key; {name} has {', '.join(known)}")
    options = {**known, **given}
    if name == "statistics":
        for key in ("images", "out"):
            if options[key] is None:
                raise bad(key, None, "must be given")
        if options["tool"] not in statistics.TOOLS:
            allowed = f"must be one of {', '.join(statistics.TOOLS)}"
            raise bad("tool", options["tool"], allowed)
        return options
    options["crop"] = "none" if options["crop"] is None else options["crop"]
    for key, allowed in (("crop", CROPS), ("filter", FILTERS)):
        if options[key] not in allowed:
            raise bad(key, options[key], f"must be one of {', '.join(allowed)}")
    if options["size"] != "original":
        _require_integer("size", options["size"], "original or an integer >= 1 (pixels of a side)")
    if name == "coco":
        if options["split"] not in coco.COUNTS:
            raise bad("split", options["split"], f"must be {' or '.join(map(str, coco.COUNTS))}")
        if options["expect"] is None:
            options["expect"] = coco.COUNTS[options["split"]]
    for key in ("classes", "per_class", "expect"):
        if key in options:
            _require_integer(key, options[key], "an integer >= 1")
    if options["out"] is None:
        raise bad("out", None, "must be given: the folder of the prepared images")
    if options["src"] is not None:
        src, out = (Path(str(options[key])).expanduser().resolve() for key in ("src", "out"))
        if out == src or src in out.parents:
            raise bad("out", options["out"], "lies in src; must be another folder")
    return options


def _require_integer(key: str, value: Any, allowed: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise bad(key, value, f"must be {allowed}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
