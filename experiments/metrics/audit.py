"""What is wrong with painted images whatever the metrics: black, of one colour, twice the same.

A model that computed NaN leaves a black picture; two prompts or seeds with one picture mean that
something was mixed up. None of it is removed from any figure.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from PIL import Image

from experiments.metrics.context import Context
from experiments.metrics.images import Preparation
from experiments.painting.store import Painted, Prompt

NAMED = 3  # images, in a note
KEPT = 100  # images, in the protocol
WORDS = 6  # 16-bit words of the pixels' SHA-256: whole numbers that float32 holds exactly


def audit(context: Context) -> None:
    """Count and name such images of each row, in notes and in `protocol["audit"]`."""
    found = context.scores.protocol["audit"] = {}
    for row in context.rows:
        facts = _facts(context, row)
        prompts = row.prompts
        black, constant = facts[:, 0] == 0, facts[:, 1] == 0
        listed = {
            "black": [p for p, is_so in zip(prompts, black, strict=True) if is_so],
            "constant": [p for p, is_so in zip(prompts, constant & ~black, strict=True) if is_so],
            "duplicates": _duplicates(row, facts[:, 2:]),
        }
        found[row.row] = {
            kind: {"count": len(of), "images": [_name(p) for p in of[:KEPT]]}
            for kind, of in listed.items()
        }
        for kind, what in (
            ("black", "are black, as NaN leaves them"),
            ("constant", "are of one colour"),
            ("duplicates", "are pixel for pixel the picture of another prompt or seed"),
        ):
            if listed[kind]:
                named = ", ".join(_name(p) for p in listed[kind][:NAMED])
                more = ", …" if len(listed[kind]) > NAMED else ""
                context.notes.append(
                    f"Warning: {len(listed[kind])} of the {len(prompts)} images of row {row.row} "
                    f"{what}: {named}{more}."
                )
        repeated = len(prompts) - len({p.key for p in prompts})
        if repeated:
            context.notes.append(
                f"{repeated} of the {len(prompts)} images repeat the prompt and seed of another "
                f"and are the same picture (row {row.row})."
            )


def _duplicates(row: Painted, pixels: np.ndarray) -> list[Prompt]:
    """All prompts that share their picture with another prompt or seed."""
    groups = defaultdict(dict)
    for prompt, words in zip(row.prompts, pixels, strict=True):
        groups[words.tobytes()].setdefault(prompt.key, prompt)
    return [prompt for group in groups.values() if len(group) > 1 for prompt in group.values()]


def look_at(context: Context) -> None:
    """Keep what `audit` asks of each row's images."""
    for row in context.rows:
        _facts(context, row)


def _facts(context: Context, row: Painted) -> np.ndarray:
    """(n, 2 + WORDS): the largest value, the widest range of a channel, the pixels' hash."""

    def compute(positions: list[int]) -> Iterator[np.ndarray]:
        for batch in context.load([row.images[i] for i in positions], Preparation()):
            yield np.array([_look(image) for image in batch], np.float32)

    store = context.store("audit")
    return store.get(context.hashes(row), compute, f"look at {row.row}").array()


def _look(image: Image.Image) -> list[int]:
    ranges = image.getextrema()
    pixels = hashlib.sha256(f"{image.size}".encode() + image.tobytes()).digest()
    words = np.frombuffer(pixels[: 2 * WORDS], "<u2")
    return [max(high for _, high in ranges), max(h - low for low, h in ranges), *map(int, words)]


def _name(prompt: Prompt) -> str:
    return f"“{prompt.text}” (seed {prompt.seed})"
