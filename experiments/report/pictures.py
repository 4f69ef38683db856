"""Which painted images the page shows, and how they are embedded."""

from __future__ import annotations

import base64
import io
from typing import Any

import pandas as pd
from PIL import Image

from experiments.metrics.images import read_image
from experiments.report.run_folder import Row, Run, row_label

BUDGET = 10 * 2**20  # bytes of all embedded pictures together
PROMPTS = 48  # at most, unless the run says otherwise
LOSSLESS = 256  # pixels a side up to which pictures are embedded as they are
LARGEST = 512


def pictures_of(run: Run) -> dict[str, Any]:
    """{"rows": [{name, label}], "prompts": [{text, seed, psnr {row: dB}, images {row: data URI}}],
    "lossless"}: half of the prompts as listed, half the ones that suffered most by PSNR.

    As many prompts as the run wants and BUDGET allows; a row that lacks an image lacks its entry.
    """
    rows = [row for row in run.rows if run.painted.get(row.name) and not row.failed]
    listed = run.manifest.get("prompts") or []
    psnr = psnr_by_image(run)
    most = run.experiment.get("pictures", PROMPTS)
    prompts, spent, lossless = [], 0, True
    for index in in_turns(range(len(listed)), worst_first(listed, psnr)):
        if len(prompts) == most:
            break
        prompt = listed[index]
        images = {}
        for row in rows:
            image = _image(run, row, index)
            if image is not None:
                lossless &= max(image.size) <= LOSSLESS
                images[row.name] = data_uri(image)
        size = sum(map(len, images.values()))
        if prompts and spent + size > BUDGET:
            break
        if not images:
            continue
        spent += size
        found = psnr.get((prompt["text"], prompt["seed"]), {})
        prompts.append(
            {"position": index, "text": prompt["text"], "seed": prompt["seed"], "psnr": found,
             "images": images}
        )  # fmt: skip
    prompts.sort(key=lambda prompt: prompt["position"])
    return {
        "rows": [{"name": row.name, "label": row_label(run, row)} for row in rows],
        "baseline": run.baseline.name if run.baseline is not None else None,
        "prompts": prompts,
        "lossless": lossless,
    }


def psnr_by_image(run: Run) -> dict[tuple[str, int], dict[str, float]]:
    """{(text, seed): {row: dB}} of the images that have one; identical images have none."""
    if run.scores is None or "psnr" not in run.scores.per_image:
        return {}
    found: dict[tuple[str, int], dict[str, float]] = {}
    for line in run.scores.per_image.to_dict("records"):
        if not pd.isna(line["psnr"]):
            image = line["prompt"], int(line["seed"])
            found.setdefault(image, {})[line["row"]] = round(float(line["psnr"]), 2)
    return found


def worst_first(listed: list[dict], psnr: dict[tuple[str, int], dict[str, float]]) -> list[int]:
    """Positions of prompts that have a PSNR, the lowest of any row first."""
    least = {
        i: min(values.values())
        for i, prompt in enumerate(listed)
        if (values := psnr.get((prompt["text"], prompt["seed"])))
    }
    return sorted(least, key=least.get)


def in_turns(*lists) -> list[int]:
    """Elements of the lists in turns, each once."""
    longest = max(map(len, lists), default=0)
    mixed = (part[i] for i in range(longest) for part in lists if i < len(part))
    return list(dict.fromkeys(mixed))


def data_uri(image: Image.Image) -> str:
    """Lossless WebP where it is small, else a JPEG of at most LARGEST pixels; no metadata."""
    plain = Image.new("RGB", image.size)
    plain.paste(image)
    buffer = io.BytesIO()
    if max(image.size) <= LOSSLESS:
        plain.save(buffer, "WEBP", lossless=True, quality=75, method=4)  # slower is no smaller
        kind = "webp"
    else:
        plain.thumbnail((LARGEST, LARGEST))
        plain.save(buffer, "JPEG", quality=90)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _image(run: Run, row: Row, index: int) -> Image.Image | None:
    paths = run.painted[row.name]
    if index >= len(paths):
        return None
    try:
        return read_image(paths[index])
    except ValueError:
        return None
