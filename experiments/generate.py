"""The generate stage: paint the images a row lacks."""

from __future__ import annotations

from collections.abc import Callable

from omegaconf import DictConfig
from tqdm import tqdm

from experiments import environment, pipelines
from experiments.config import device
from experiments.methods.base import Method
from experiments.store import ImageStore, Prompt


def paint(
    cfg: DictConfig,
    pipe,
    method: Method,
    store: ImageStore,
    prompts: list[Prompt],
    label: str,
    on_match: Callable[[str], None] | None = None,
) -> int:
    """Paint the missing images, batch by batch; returns how many were painted.

    Each PNG appears whole, right after its batch: an interruption loses the batch in flight. Rows
    whose images depend on each other are painted from the first to the last or not at all.
    """
    store.write_identity()
    missing = store.missing(prompts)
    if method.order_dependent and missing:
        store.clear()
        missing = list(dict.fromkeys(prompts))
    if not missing:
        return 0
    batch = cfg.generation.batch_size
    where = {
        "device": environment.device_name(device(cfg)),
        "versions": environment.versions(),
        "batch_size": batch,
    }
    with (
        method.attach(pipe, record=True, on_match=on_match) as attached,
        tqdm(total=len(missing), desc=label, unit="image") as progress,
    ):
        for start in range(0, len(missing), batch):
            part = missing[start : start + batch]
            images = pipelines.generate(pipe, cfg, part)
            facts = method.per_image(attached, len(part))
            for prompt, image, fact in zip(part, images, facts, strict=True):
                store.write(prompt, image, {**where, **fact})
            progress.update(len(part))
    return len(missing)
