"""Protocols by name: how other works judge images, each fact with its source, or unknown.

`configs/protocol/<name>.yaml` sets keys of `metrics` to what a work does after painting, and lists
under `protocol` what is known of it. Prompts, seeds and sampling stay those of the benchmark;
`departures` says where a run is another than the work's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.common.paths import ROOT

FOLDER = ROOT / "configs" / "protocol"
UNKNOWN = "unknown"
FIELDS = (
    "file_format", "rounding", "painted_resize", "clip_model", "clip_scaling", "fid_tool",
    "fid_target", "reference_count", "reference_crop", "psnr", "ssim", "lpips",
)  # fmt: skip


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str) -> DictConfig:
    """A protocol's file: its sections `protocol` and `metrics`. FileNotFoundError if none."""
    return OmegaConf.load(FOLDER / f"{name}.yaml")


def departures(cfg: DictConfig, images: int | None = None) -> list[str]:
    """Where a run differs from the work whose protocol it names, one sentence each.

    Args:
        cfg: of the run; its section `protocol` comes from `protocol=<name>` and may be absent.
            Keys that it lacks, such as those of painting where images come from elsewhere, are
            not compared.
        images: how many images a row has; None: as far as `prompts` says.
    """
    protocol = _plain(cfg, "protocol")
    if not protocol:
        return []
    name, found = protocol["name"], []
    painted_here = OmegaConf.select(cfg, "generation") is not None
    for key, field in leaves(protocol["fields"]):
        if field != UNKNOWN and "ours" in field and (painted_here or key != "rounding"):
            found.append(f"{key}: here {field['ours']}, {_theirs(name, field)}")
    benchmark = OmegaConf.select(cfg, "benchmark.name")
    if benchmark is not None and benchmark != protocol["benchmark"]:
        other = protocol["benchmark"]
        own = f"those of benchmark={other}" if other else "of no benchmark here"
        found.append(f"benchmark: here {benchmark}, the prompts of {name} are {own}")
    for key, field in leaves(protocol["painting"]):
        if field == UNKNOWN:
            continue
        here = _here(cfg, key, images)
        if here is not None and here != field["value"]:
            found.append(f"{key}: here {_shown(here)}, {_theirs(name, field)}")
    return found + _changed_metrics(cfg, name)


def unknown_fields(cfg: DictConfig) -> list[str]:
    """What the sources do not say of the work, so that this project's own choice stands."""
    protocol = _plain(cfg, "protocol")
    if not protocol:
        return []
    fields = list(leaves(protocol["fields"]))
    if OmegaConf.select(cfg, "generation") is not None:
        fields += leaves(protocol["painting"])
    return [key for key, field in fields if field == UNKNOWN]


def leaves(fields: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, field) of nested fields; a field is `unknown` or has a value and a source."""
    for key, field in fields.items():
        if field == UNKNOWN or "value" in field:
            yield prefix + key, field
        else:
            yield from leaves(field, f"{prefix}{key}.")


def _theirs(name: str, field: dict[str, Any]) -> str:
    return f"{name} has {_shown(field['value'])} ({field['source']})"


def _changed_metrics(cfg: DictConfig, name: str) -> list[str]:
    """Keys of `metrics` that the protocol's file sets and the run sets otherwise."""
    if name not in names():
        return []  # a protocol of somebody else's folder
    wanted = OmegaConf.to_container(load(name).metrics)
    found = []
    for key, value in wanted.items():
        for inner, expected in value.items() if isinstance(value, dict) else [("", value)]:
            full = f"metrics.{key}.{inner}".removesuffix(".")
            here = _plain(cfg, full)
            if here != expected:
                found.append(
                    f"{full}: here {_shown(here)}, the protocol {name} has {_shown(expected)}"
                )
    return found


def _here(cfg: DictConfig, key: str, images: int | None) -> Any:
    """What a run has in place of a field of `painting`; None where that cannot be said."""
    if key == "images":
        return _count(cfg, images)
    if key == "seeds":
        return "one an image" if OmegaConf.select(cfg, "generation") is not None else None
    kind = OmegaConf.select(cfg, "prompts.kind")
    if key == "prompts.captions":
        chosen = {"one": "one of an image's captions, chosen by seed", "all": "all captions"}
        return chosen.get(OmegaConf.select(cfg, key)) if kind == "coco" else None
    if key == "prompts.class_names" and kind == "imagenet":
        return _plain(cfg, key) or "torchvision's list"
    return _plain(cfg, key)


def _count(cfg: DictConfig, images: int | None) -> int | None:
    if images is not None or OmegaConf.select(cfg, "prompts") is None:
        return images
    if cfg.prompts.limit is not None:
        return cfg.prompts.limit
    if cfg.prompts.kind == "imagenet" and cfg.prompts.path is None:
        return 1000 * cfg.prompts.per_class
    return None


def _plain(cfg: DictConfig, key: str) -> Any:
    value = OmegaConf.select(cfg, key)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else str(value)
