"""How long a run of very many finished images takes to look through, and in how much memory.

    python scripts/scale_images.py images=1000000 store=files folder=/tmp/scale [out=<file>.json]

Writes minimal PNGs with the store's own code (flushing each to the disk is left out, as only their
number matters here), cuts one short, and then, in a process of its own: the scan that a resumed run
begins with, which has to find the truncated one, and the aggregation of all records into a row's
facts. Prints seconds and peak memory. The folder can be used again and is left for the user to
delete.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from experiments.painting.store import ImageStore, Prompt  # noqa: E402

SHARES = 64  # tasks that painted them, a zip each
RECORD = {
    "device": "some device",
    "versions": {"torch": "2.14.1", "diffusers": "0.42.1", "python": "3.11"},
    "batch_size": 8,
    "merged_share": 0.71,
}


@dataclass
class Options:
    images: int = 1_000_000
    store: str = "files"  # files | zip
    folder: str = "scale"
    out: str | None = None
    part: str | None = None  # of the processes that this one starts


def prompts(images: int) -> list[Prompt]:
    """As long as COCO's captions are on average, with COCO's image ids."""
    return [
        Prompt(f"A caption with as many letters as others, {i:8d}.", i, str(i))
        for i in range(images)
    ]


def store_in(options: Options) -> ImageStore:
    return ImageStore(Path(options.folder) / options.store, {"method": "of the scale test"})


def write(options: Options) -> None:
    chosen = prompts(options.images)
    store = store_in(options)
    image = Image.new("RGB", (1, 1))
    os.fsync = lambda descriptor: None
    for share in range(SHARES):
        part = chosen[share::SHARES]
        for prompt in store.missing(part):
            store.write(prompt, image, RECORD)
        if options.store == "zip":
            store.pack(part)


def truncate(options: Options) -> Prompt:
    """Cut the last image of the list short: its file, or its zip's directory entry's image."""
    prompt = prompts(options.images)[-1]
    path = store_in(options).path(prompt)
    if options.store == "files":
        os.truncate(path, path.stat().st_size - 4)
        return prompt
    content = path.parent.read_bytes()
    begin = content.index(path.name.encode())
    end = content.index(b"IEND\xaeB`\x82", begin)
    path.parent.write_bytes(content[:end] + b"\0" * 8 + content[end + 8 :])
    return prompt


def scan(options: Options) -> dict[str, float]:
    chosen = prompts(options.images)
    start = time.perf_counter()
    missing = store_in(options).missing(chosen)
    seconds = time.perf_counter() - start
    assert missing == [chosen[-1]], f"{len(missing)} missing"
    return {"scan_s": seconds, "scan_mb": peak()}


def aggregate(options: Options) -> dict[str, float]:
    from experiments.painting.facts import image_facts

    chosen = prompts(options.images)
    start = time.perf_counter()
    facts = image_facts(store_in(options), chosen)
    seconds = time.perf_counter() - start
    assert abs(facts["merged_share"] - RECORD["merged_share"]) < 1e-9
    return {"aggregate_s": seconds, "aggregate_mb": peak()}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


PARTS = {"scan": scan, "aggregate": aggregate}


def main() -> None:
    options = OmegaConf.to_object(
        OmegaConf.merge(OmegaConf.structured(Options), OmegaConf.from_cli(sys.argv[1:]))
    )
    if options.part:
        print(json.dumps(PARTS[options.part](options)))
        return
    write(options)
    truncate(options)
    found = {"images": options.images, "store": options.store}
    for part in PARTS:
        command = [sys.executable, __file__, *sys.argv[1:], f"part={part}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found |= json.loads(done.stdout)
    text = json.dumps(found, indent=1)
    print(text)
    if options.out:
        Path(options.out).write_text(text + "\n")


if __name__ == "__main__":
    main()
