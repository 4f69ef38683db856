"""What a run's folder says of its rows and of itself."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.accelerators.build import build_method
from experiments.common import environment
from experiments.common.errors import ConfigError, RowFailed, first_line, kind_and_line
from experiments.settings import protocols


def columns_of(cfg: DictConfig, of_method: dict[str, Any]) -> dict[str, Any]:
    """What the table can say of a row; it shows what its layout names and what rows differ in."""
    options = cfg.generation
    return {
        **of_method,
        "steps": options.steps,
        "width": options.width,
        "height": options.height,
        "attention": cfg.attention,
        "batch": cfg.timing.batch_size,
    }


OF_A_ROW = (  # sections and keys that make one row another than its neighbour
    "seed", "replicates", "device", "dtype", "attention", "data", "model", "method", "generation",
    "timing", "prompts", "metrics", "benchmark",
)  # fmt: skip


def flat(cfg: DictConfig) -> dict[str, Any]:
    """Every setting of a row, dotted; those of the experiment and of the machine left out."""
    out: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        else:
            out[prefix] = value

    whole = OmegaConf.to_container(cfg, resolve=True)
    walk("", {key: value for key, value in whole.items() if key in OF_A_ROW})
    return out


def failed_record(cfg: DictConfig, name: str, error: BaseException) -> dict[str, Any]:
    try:
        columns = build_method(cfg).columns()
    except ConfigError:
        columns = {"method": cfg.method.get("name"), "caching": None}
    columns = columns_of(cfg, columns)
    told = isinstance(error, (ConfigError, RowFailed))
    return {
        "row": name,
        "status": "failed",
        "error": first_line(error) if told else kind_and_line(error),
        "columns": columns,
        "images": 0,
        "merged_share": None,
        "order_dependent": False,
        "settings": flat(cfg),
    }


def experiment_record(cfg: DictConfig, rows: list[str]) -> dict[str, Any]:
    experiment = OmegaConf.to_container(cfg.experiment, resolve=True)
    varied = {key for template in experiment["rows"] for key in template} - {"row", "each"}
    return {
        **experiment,
        "benchmark": cfg.benchmark.name,
        "rows": rows,
        "varied": sorted(varied),
        "columns": list(cfg.columns),
        "pictures": cfg.pictures,
        "notes": notes(cfg),
        "protocol": OmegaConf.select(cfg, "protocol.name"),
        "departures": protocols.departures(cfg),
        "code": environment.code(),
    }


def notes(cfg: DictConfig) -> list[str]:
    """What a reader has to know of the runs beside their settings."""
    lines = []
    if cfg.benchmark.name == "toy":
        lines.append("The toy world is a small model trained for this project; its figures are no "
                     "statement about Stable Diffusion.")  # fmt: skip
    else:
        lines.append("The safety checker is off.")
    return lines
