"""Prompts: COCO captions, ImageNet classes, a user's file, the toy world's captions.

Every source gives (text, source id) pairs in an order that does not depend on `prompts.limit`, so
that a longer list begins with the shorter one. The image seed is `seed + position`, and
REPLICATE_SEEDS further for every replicate.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.common.errors import bad
from experiments.common.files import digest
from experiments.painting.store import Prompt
from experiments.settings.folders import results_root
from experiments.toy import scenes

REPLICATE_SEEDS = 100_000_000  # beyond any list's length, so that no two images share a seed
CSV_COLUMNS = ("prompt", "caption", "text")
WARMUP_PROMPTS = (
    "a photograph of a lighthouse at dusk",
    "a bowl of fruit on a wooden table",
    "two bicycles leaning against a brick wall",
    "a mountain lake under clouds",
)


def load_prompts(cfg: DictConfig) -> tuple[list[Prompt], dict[str, Any]]:
    """`load` for a run's configuration."""
    return load(cfg.prompts, cfg.seed, results_root(cfg) / "data", cfg.replicates)


def load(
    options: Any, seed: int, data_folder: Path, replicates: int = 1
) -> tuple[list[Prompt], dict[str, Any]]:
    """The prompts of a run and the rule by which they were chosen.

    Args:
        options: the `prompts` section.
        seed: of the run; image i gets seed + i.
        data_folder: where the toy captions are written.
        replicates: how often the list is painted, each time with other seeds; replicate 0 first.

    Raises:
        ConfigError: a missing, empty or foreign file.
    """
    path = None if options.path is None else Path(options.path)
    if path is not None and not path.is_file():
        raise bad("prompts.path", options.path, "no such file")
    if options.kind == "imagenet" and path is None:
        pairs, rule = imagenet(options)
    else:
        if options.kind == "toy" and path is None:
            path = write_toy_captions(data_folder / "toy_scenes", options.scenes)
        pairs, rule = read_file(path, options.get("captions", "one"), options.seed)
    if not pairs:
        raise bad("prompts.path", path, "the file holds no prompts")
    if options.split is not None:
        pairs = [p for p in pairs if split_of(p[0], options.tune_share) == options.split]
        rule = {**rule, "split": options.split, "tune_share": options.tune_share}
        if not pairs:
            raise bad("prompts.split", options.split, "no prompt of the file falls into it")
    if options.limit is not None and options.limit > len(pairs):
        raise bad("prompts.limit", options.limit, f"at most {len(pairs)}, all there are")
    chosen = pairs[: options.limit]
    prompts = [
        Prompt(text, seed + i + r * REPLICATE_SEEDS, source, r)
        for r in range(replicates)
        for i, (text, source) in enumerate(chosen)
    ]
    rule = {"kind": options.kind, **rule, "available": len(pairs), "images": len(prompts)}
    if replicates > 1:
        rule["replicates"] = replicates
    return prompts, rule


def split_of(text: str, tune_share: float) -> str:
    """`tune` or `report`, a function of the text alone: what is chosen on the one split, a
    threshold or a schedule, is reported on the other."""
    return "tune" if int(digest(text, 8), 16) < tune_share * 2**32 else "report"


def manifest(prompts: list[Prompt], rule: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """What a run's table says of its prompts; truncated captions are counted by `tokenizer`."""
    longest = tokenizer.model_max_length
    lengths = [len(ids) for ids in tokenizer([p.text for p in prompts]).input_ids]
    return {
        "rule": rule,
        "truncated": sum(n > longest for n in lengths),
        "token_limit": longest,
        "digest": digest([[p.text, p.seed] for p in prompts]),
        "prompts": [
            {"text": p.text, "seed": p.seed, "source": p.source, "replicate": p.replicate}
            for p in prompts
        ],
    }


def clean(text: str) -> str:
    """Captions as people typed them carry newlines and double spaces."""
    return " ".join(text.split())


def imagenet(options: Any) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    if options.class_names is None:
        from torchvision.models._meta import _IMAGENET_CATEGORIES as names

        listed = "torchvision's list of class names"
    else:
        path = Path(options.class_names)
        if not path.is_file():
            raise bad("prompts.class_names", path, "no such file")
        names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        names, listed = [n for n in names if n], str(options.class_names)
    if "{class}" not in options.template:
        raise bad("prompts.template", options.template, "must contain {class}")
    pairs = [
        (options.template.replace("{class}", name), f"{index}/{copy}")
        for index, name in enumerate(names)
        for copy in range(options.per_class)
    ]
    return pairs, {
        "class_names": listed,
        "per_class": options.per_class,
        "template": options.template,
        "order": "class by class",
    }


def write_toy_captions(folder: Path, count: int) -> Path:
    """Held-out scenes as images and COCO captions, written once for each count."""
    target = folder / f"held_out_{count}"
    path = target / "captions.json"
    if not path.is_file():
        scenes.write_coco(scenes.sample(count, seed=1, held_out=True), target)
    return path


def read_file(path: Path, captions: str, seed: int) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Pairs of a .json (COCO's format, or a list), .csv or text file with one prompt a line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise bad("prompts.path", path, "must be UTF-8 text") from None
    rule: dict[str, Any] = {"file": path.name, "file_digest": digest(text)}
    if path.suffix.lower() == ".json":
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise bad("prompts.path", path, f"is not JSON (line {error.lineno})") from None
        if isinstance(content, list):
            pairs = [_listed(path, i, item) for i, item in enumerate(content)]
            return _numbered(pairs), {**rule, "order": "as listed"}
        pairs = coco(path, content, captions, seed)
        order = "images shuffled by seed"
        return pairs, {**rule, "captions": captions, "choice_seed": seed, "order": order}
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(text.splitlines())
        column = next((c for c in CSV_COLUMNS if c in (reader.fieldnames or ())), None)
        if column is None:
            raise bad("prompts.path", path, f"needs a column named {' or '.join(CSV_COLUMNS)}")
        lines = [row[column] or "" for row in reader]
    else:
        lines = text.splitlines()
    return _numbered([clean(line) for line in lines]), {**rule, "order": "as listed"}


def _listed(path: Path, index: int, item: Any) -> str:
    if isinstance(item, dict):
        item = next((item[c] for c in CSV_COLUMNS if c in item), None)
    if not isinstance(item, str):
        allowed = f"entry {index} must be text or an object with {' or '.join(CSV_COLUMNS)}"
        raise bad("prompts.path", path, allowed)
    return clean(item)


def _numbered(lines: list[str]) -> list[tuple[str, str]]:
    return [(line, str(i)) for i, line in enumerate(lines) if line]


def coco(path: Path, content: Any, captions: str, seed: int) -> list[tuple[str, str]]:
    """(caption, image id) of a COCO captions JSON.

    `captions="one"` takes one of an image's, chosen by (seed, image id); "all" takes all. The
    order of the images is a permutation by seed.
    """
    if captions not in ("one", "all"):
        raise bad("prompts.captions", captions, "must be one or all")
    try:
        by_image: dict[int, list[str]] = {int(image["id"]): [] for image in content["images"]}
        for annotation in sorted(content["annotations"], key=lambda a: a["id"]):
            by_image[int(annotation["image_id"])].append(clean(annotation["caption"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        allowed = "must be COCO captions: images with id, annotations with id, image_id, caption"
        raise bad("prompts.path", path, allowed) from None
    ids = sorted(image for image, texts in by_image.items() if any(texts))
    pairs = []
    for i in np.random.default_rng(seed).permutation(len(ids)):
        texts = [t for t in by_image[ids[i]] if t]
        if captions == "one":
            texts = [texts[np.random.default_rng([seed, ids[i]]).integers(len(texts))]]
        pairs += [(text, str(ids[i])) for text in texts]
    return pairs


def warmup(kind: str, count: int) -> list[Prompt]:
    """Prompts for warming up: none of the run's."""
    if kind == "toy":
        drawn = scenes.sample(count, seed=2, held_out=True)
        return [Prompt(scenes.caption(s), 10_000_000 + i) for i, s in enumerate(drawn)]
    return [Prompt(WARMUP_PROMPTS[i % len(WARMUP_PROMPTS)], 10_000_000 + i) for i in range(count)]
