"""Errors in one line: the key, the value and what is allowed.

Hydra and OmegaConf say in several lines that something is wrong, and seldom what would be right.
"""

from __future__ import annotations

import re

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from experiments.common.errors import ConfigError, RowFailed, RowsFailed
from experiments.common.paths import ROOT

CONFIGS = ROOT / "configs"


def one_line(error: BaseException, arguments: list[str]) -> str | None:
    """The message for the user, or None where only a traceback helps (a defect of ours)."""
    if isinstance(error, (ConfigError, RowFailed, RowsFailed)):
        return f"error: {error}"
    if isinstance(error, MissingConfigException):
        return f"error: {_missing_config(error, arguments)}"
    if isinstance(error, MissingMandatoryValue):
        key = getattr(error, "full_key", None) or _first_line(error)
        return f"error: {key}=???: must be given"
    key_error = _cause(error, (ConfigKeyError, ConfigAttributeError))
    if key_error is not None and getattr(key_error, "full_key", None):
        return f"error: {_unknown_key(key_error, arguments)}"
    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return f"error: {_first_line(error)}"
    if isinstance(error, OSError):
        return f"error: {error.filename or ''}: {error.strerror or error}"
    return None


def compose_config(arguments: list[str]) -> DictConfig:
    """The configuration that `run.py` would have with these arguments.

    Raises:
        ConfigError: one line that names the key, the value and what is allowed.
    """
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return compose("config", arguments)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(one_line(error, arguments).removeprefix("error: ")) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines else type(error).__name__


def _cause(error: BaseException | None, kind: type | tuple[type, ...]) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _missing_config(error: MissingConfigException, arguments: list[str]) -> str:
    """`method=foo: must be one of ...`"""
    missing = error.missing_cfg_file or ""
    group, _, name = str(missing).rpartition("/")
    options = error.options or _options(group)
    return f"{group or 'config'}={name}: must be one of {', '.join(options)}"


def _options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def _unknown_key(error: OmegaConfBaseException, arguments: list[str]) -> str:
    """`method.rato=0.3: unknown key; method has ...`"""
    key = error.full_key
    given = next((a for a in arguments if re.match(rf"\+*{re.escape(key)}\b", a)), key)
    parent = error.parent_node
    known = ""
    if parent is not None and OmegaConf.is_dict(parent):
        where = key.rpartition(".")[0]
        names = sorted(str(k) for k in parent if not str(k).startswith("_"))
        known = f"; {where or 'the configuration'} has {', '.join(names)}"
    return f"{given}: unknown key{known}"
