"""Checks of single values; each raises ConfigError with the key, the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf
from numbers import Real
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from omegaconf import ListConfig

from experiments.common.errors import bad

DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def require_choice(key: str, value: Any, choices: Iterable[str]) -> None:
    if value not in choices:
        raise bad(key, value, f"must be one of {', '.join(choices)}")


def require_list(key: str, value: Any, choices: Iterable[str]) -> None:
    if not isinstance(value, (list, ListConfig)):
        raise bad(key, value, f"must be a list of {', '.join(choices)}")
    for choice in value:
        require_choice(key, choice, choices)


def require_device_name(key: str, value: Any) -> None:
    if DEVICE.fullmatch(str(value)) is None:
        raise bad(key, value, "must be auto, cpu, cuda or cuda:<n>")


def require_writable(key: str, folder: Path) -> None:
    """Refuse a folder that results could not go to, before there are any; makes none."""
    nearest = next(there for there in (folder, *folder.parents) if there.exists())
    try:
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        reason = f"must be a folder that can be written to: {error.strerror}"
        raise bad(key, folder, reason) from error


def require_integer(key: str, value: Any, least: int, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        null = " or null" if optional else ""
        raise bad(key, value, f"must be an integer >= {least}{null}")


def require_number(
    key: str, value: Any, least: float, most: float = inf, open_ends: bool = False
) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if number and (least < value < most or (not open_ends and value in (least, most))):
        return
    lower = f"a number {'>' if open_ends else '>='} {least}"
    upper = "" if most == inf else f" and {'<' if open_ends else '<='} {most}"
    raise bad(key, value, f"must be {lower}{upper}")
