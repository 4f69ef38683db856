"""What `python -m experiments.<name>` commands share: arguments, help, errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from experiments.common.errors import ConfigError, bad, first_line


def run(
    argv: list[str],
    usage: str,
    work: Callable[[list[str]], str],
    expected: type[Exception] = ValueError,
    bare: bool = False,
) -> int:
    """Print what `work` returns, or why it cannot; returns the exit code.

    Args:
        expected: what bad input raises; any other exception goes up with its traceback.
        bare: whether there is something to do without arguments; else the usage is printed.
    """
    if (not argv and not bare) or argv[:1] in (["-h"], ["--help"]):
        print(usage)
        return 0 if argv else 2
    try:
        print(work(argv))
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept, the same command goes on", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 1
    except expected as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def command_options(argv: list[str], defaults: dict[str, Any]) -> DictConfig:
    """The `key=value` arguments of a command over its defaults.

    Raises:
        ConfigError: an argument that cannot be read, or an unknown key.
    """
    try:
        given = OmegaConf.from_cli(argv)
        options = OmegaConf.merge(defaults, given)
        OmegaConf.to_container(options, resolve=True)
    except (OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"{' '.join(argv)}: {first_line(error)}") from error
    for key in given:
        if key not in defaults:
            raise bad(key, given[key], f"unknown key; known are {', '.join(defaults)}")
    return options
