"""Errors that are told in one line, without a traceback."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf


class ConfigError(ValueError):
    """A setting that cannot be; its message is one line: key, value and what is allowed."""


class RowFailed(RuntimeError):
    """Why a row is not finished, in words for a reader."""


class RowsFailed(RuntimeError):
    """Some rows of an experiment failed; the others are finished and reported."""


def bad(key: str, value: Any, allowed: str) -> ConfigError:
    """`key=value: allowed`, to be raised."""
    return ConfigError(f"{key}={plain(value)}: {allowed}")


def plain(value: Any) -> Any:
    """A value of a configuration as Python's own types; None is `null`, as in YAML."""
    if isinstance(value, (DictConfig, ListConfig)):
        value = OmegaConf.to_container(value, resolve=True)
    return "null" if value is None else value


def first_line(error: BaseException) -> str:
    """What an exception says, in one line; its class where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def kind_and_line(error: BaseException) -> str:
    """An exception in one line, with its class: for those that are no user's mistake."""
    kind, said = type(error).__name__, str(error).strip()
    return f"{kind}: {said.splitlines()[0]}" if said else kind
