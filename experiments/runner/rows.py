"""The rows of an experiment: from its YAML to one list of overrides each."""

from __future__ import annotations

from itertools import product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from experiments.common.errors import ConfigError, bad


def expand(cfg: DictConfig) -> dict[str, list[str]]:
    """{row name: Hydra overrides}, in the order of the YAML, cut down to `cfg.rows`.

    A row is `{row: name, key: value, ...}`; `each: {name: list}` makes one row for every
    combination, and `{name}` in its texts is replaced. A text that is nothing but `{name}` becomes
    the value itself.
    """
    rows: dict[str, list[str]] = {}
    for template in OmegaConf.to_container(cfg.experiment.rows, resolve=True):
        settings = dict(template)
        each = settings.pop("each", {})
        for key, values in each.items():
            if not isinstance(values, list) or not values:
                raise bad(f"experiment.rows.each.{key}", values, "must be a list")
        for values in product(*each.values()):
            chosen = dict(zip(each, values, strict=True))
            name = settings["row"].format(**{k: label(v) for k, v in chosen.items()})
            if name in rows:
                raise ConfigError(f"experiment.rows={name}: this name occurs twice")
            overrides = [f"row={quote(name)}"]
            for key, value in settings.items():
                if key != "row":
                    overrides.append(f"{key}={quote(fill(value, chosen))}")
            rows[name] = overrides
    return select(rows, cfg.rows)


def select(rows: dict[str, list[str]], wanted: Any) -> dict[str, list[str]]:
    if wanted is None:
        return rows
    unknown = [name for name in wanted if name not in rows]
    if unknown:
        raise bad("rows", unknown, f"must be among {', '.join(rows)}")
    return {name: overrides for name, overrides in rows.items() if name in wanted}


def label(value: Any) -> str:
    """A value as part of a row's name, which is a file's name too."""
    if isinstance(value, list):
        return "-".join(map(str, value))
    return str(value)


def fill(value: Any, chosen: dict[str, Any]) -> Any:
    if not isinstance(value, str):
        return value
    for key, replacement in chosen.items():
        if value == f"{{{key}}}":
            return replacement
    return value.format(**chosen) if "{" in value else value


def quote(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(quote, value))}]"
    text = str(value)
    try:
        parsed = OverridesParser.create().parse_override(f"key={text}")
        if parsed.value() == text:
            return text
    except HydraException:
        pass
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
