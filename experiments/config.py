"""The composed configuration: validation where it enters, and the parts the stages share."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from numbers import Real
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from experiments.explain import COLUMNS
from experiments.methods.base import Method

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("generate", "evaluate", "time", "report")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
ATTENTION = ("fused", "math")
LARGEST = "largest"  # of timing.batch_size
SPLITS = ("tune", "report")
SCHEDULERS = ("plms", "ddim", "dpm++2m", "euler")


class ConfigError(ValueError):
    """A setting that cannot be; its message is one line: key, value and what is allowed."""


class RowFailed(RuntimeError):
    """Why a row is not finished, in words for a reader."""


class RowsFailed(RuntimeError):
    """Some rows of an experiment failed; the others are finished and reported."""


def bad(key: str, value: Any, allowed: str) -> ConfigError:
    return ConfigError(f"{key}={plain(value)}: {allowed}")


def plain(value: Any) -> Any:
    if isinstance(value, (DictConfig, ListConfig)):
        value = OmegaConf.to_container(value, resolve=True)
    return "null" if value is None else value


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
        raise ConfigError(f"{' '.join(argv)}: {str(error).splitlines()[0]}") from error
    for key in given:
        if key not in defaults:
            raise bad(key, given[key], f"unknown key; known are {', '.join(defaults)}")
    return options


def require_choice(key: str, value: Any, choices: Iterable[str]) -> None:
    if value not in choices:
        raise bad(key, value, f"must be one of {', '.join(choices)}")


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


def check(cfg: DictConfig, elsewhere: bool = False) -> None:
    """Raise ConfigError for the first setting that cannot be; loads no model.

    Args:
        elsewhere: what is run does not run on this machine: its devices are not looked at.
    """
    require_integer("seed", cfg.seed, 0)
    require_integer("replicates", cfg.replicates, 1)
    require_choice("dtype", cfg.dtype, DTYPES)
    require_choice("attention", cfg.attention, ATTENTION)
    require_choice("plan", plain(cfg.plan), ("null", "power", "cost"))
    require_choice("debug", plain(cfg.debug), ("null", "row"))
    for key, choices in (("stages", STAGES), ("columns", COLUMNS)):
        if not isinstance(cfg[key], ListConfig) or (key == "stages" and not cfg.stages):
            raise bad(key, cfg[key], f"must be a list of {', '.join(choices)}")
        for choice in cfg[key]:
            require_choice(key, choice, choices)
    generation = cfg.generation
    require_choice("generation.scheduler", generation.scheduler, SCHEDULERS)
    require_number("generation.guidance_scale", generation.guidance_scale, 0)
    for key in ("steps", "height", "width", "batch_size", "shards"):
        require_integer(f"generation.{key}", generation[key], 1)
    for key in ("height", "width"):
        if generation[key] % 8:
            raise bad(f"generation.{key}", generation[key], "must be a multiple of 8")
    require_integer("timing.repeats", cfg.timing.repeats, 1)
    require_integer("timing.warmup", cfg.timing.warmup, 0)
    if cfg.timing.batch_size != LARGEST:
        require_integer("timing.batch_size", cfg.timing.batch_size, 1)
    elif not elsewhere and device(cfg).type != "cuda":
        raise bad("timing.batch_size", LARGEST, "needs CUDA, whose memory bounds it; use a number")
    require_integer("prompts.limit", cfg.prompts.limit, 1, optional=True)
    require_choice("prompts.split", plain(cfg.prompts.split), ("null", *SPLITS))
    require_number("prompts.tune_share", cfg.prompts.tune_share, 0, 1)
    require_number("power.probability", cfg.power.probability, 0, 1, open_ends=True)
    if not isinstance(cfg.power.difference, DictConfig):
        raise bad("power.difference", cfg.power.difference, "must be numbers by metric")
    for metric, difference in cfg.power.difference.items():
        require_number(f"power.difference.{metric}", difference, 0, open_ends=True)
    if not elsewhere:
        device(cfg)
    require_choice("store", cfg.store, ("files", "zip"))
    require_integer("pictures", cfg.pictures, 0)
    require_integer("keep_images", cfg.keep_images, 1, optional=True)
    if not isinstance(cfg.wait, bool):
        raise bad("wait", cfg.wait, "must be true or false")
    build_method(cfg)


def device(cfg: DictConfig) -> torch.device:
    """`cfg.device`, `auto` being CUDA where there is one."""
    name = str(cfg.device)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name != "cpu" and name != "cuda" and not (name[:5] == "cuda:" and name[5:].isdigit()):
        raise bad("device", name, "must be auto, cpu, cuda or cuda:<n>")
    if name != "cpu":
        index = int(name[5:] or 0) if ":" in name else 0
        if index >= torch.cuda.device_count():
            found = torch.cuda.device_count()
            raise bad("device", name, f"{found} CUDA devices found; use device=cpu")
    return torch.device(name)


def build_method(cfg: DictConfig) -> Method:
    """The accelerator `cfg.method` describes."""
    try:
        method = instantiate(cfg.method, _convert_="all")
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, ValueError):
            raise ConfigError(f"method.{cause}") from None
        if isinstance(cause, (TypeError, ImportError, AttributeError, ModuleNotFoundError)):
            target = cfg.method.get("_target_")
            raise bad("method._target_", target, str(cause).splitlines()[0]) from error
        raise
    if not isinstance(method, Method):
        kind = type(method).__name__
        raise bad(
            "method._target_", cfg.method.get("_target_"),
            f"makes a {kind}; must be a subclass of experiments.methods.base.Method",
        )  # fmt: skip
    method.prepare(evaluations_of(cfg.generation.scheduler, cfg.generation.steps))
    return method


def evaluations_of(scheduler: str, steps: int) -> int:
    """U-Net evaluations of a generation: PLMS makes its second timestep twice."""
    return steps + 1 if scheduler == "plms" and steps > 1 else steps


def results_root(cfg: DictConfig) -> Path:
    return Path(cfg.results)


def run_folder(cfg: DictConfig) -> Path:
    """Where the files of an experiment or of a single row lie, the same for every call of it."""
    return results_root(cfg) / cfg.benchmark.name / cfg.experiment.name


def locate(path: str) -> str:
    """A path that exists from the working directory or else from the checkout; others as given."""
    for candidate in (Path(path).expanduser(), ROOT / path):
        if candidate.exists():
            return str(candidate)
    return path
