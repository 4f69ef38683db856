"""What README and docs show exists and runs: links, files, commands, configurations, Python."""

import functools
import importlib
import importlib.util
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from commands import ROOT
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.accelerators.build import build_method
from experiments.common.command import command_options
from experiments.common.requirements import require_list
from experiments.report.columns import COLUMNS
from experiments.runner.rows import expand
from experiments.settings.check import check

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)|\bsrc=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
KEPT = re.compile(  # of the repository, unlike results/runs and a user's own files
    r"(?:catome|configs|docs|experiments|hydra_plugins|notebooks|scripts|tests|results/(?!runs))/"
    r"[\w./-]+|Dockerfile|Makefile"
)
EXAMPLES = {"sweeps": "-m", "help": "--help"}


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    return FENCE.sub("", text(page))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def links(page: Path) -> list[str]:
    return [a or b for a, b in LINK.findall(prose(page)) if not (a or b).startswith("http")]


def shown_commands() -> list[tuple[str, str]]:
    """(page, command) of every command in a shell block or in a code span."""
    found = []
    for page in PAGES:
        lines = []
        for language, block in FENCE.findall(text(page)):
            if language == "":
                lines += block.replace("\\\n", " ").splitlines()
        found += [(name(page), line) for line in lines if line.strip()]
        for span in SPAN.findall(prose(page)):
            if re.match(r"(python|make|sh) ", span):
                found.append((name(page), span))
            elif span.startswith("+experiment="):
                found.append((name(page), f"python run.py {span}"))
    return list(dict.fromkeys(found))


COMMANDS = shown_commands()


def words_of(command: str) -> list[str]:
    """The words after the variables that a command sets; what a reader fills in is filled in."""
    filled = re.sub(r"experiment=<[^>]+>", "experiment=ablation_cache", command)
    filled = re.sub(r"experiments\.<[^>]+>", "experiments.doctor", filled)
    filled = re.sub(r"<[^>]+>", "something", filled)
    words = shlex.split(filled, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return words


def test_the_readme_is_short():
    assert len(text(README).splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = (page.parent / unquote(target)).resolve() if target else page
        assert path.exists(), f"{link}: no such file"
        assert ROOT in (path, *path.parents), f"{link}: outside of the repository"
        if anchor:
            assert anchor in anchors(path), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page):
    for span in SPAN.findall(prose(page)):
        if KEPT.fullmatch(span):
            assert (ROOT / span).exists(), f"{span}: no such file"


def test_every_page_is_reached_from_the_readme():
    reached, to_read = set(), [README]
    while to_read:
        page = to_read.pop()
        if page in reached or not page.is_file():
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
        to_read += [target for target in targets if target.suffix == ".md"]
    assert set(PAGES) <= reached


def overrides_in_turn(words: list[str]) -> list[list[str]]:
    """The overrides of a command; with `-m`, of each of its jobs (one sweep)."""
    given = [word for word in words if not word.startswith("-")]
    if "-m" not in words:
        return [given]
    parsed = OverridesParser.create().parse_overrides(given)
    (sweep,) = [one for one in parsed if one.is_sweep_override()]
    rest = [word for word, one in zip(given, parsed, strict=True) if one is not sweep]
    values = sweep.sweep_string_iterator()
    return [[*rest, f"{sweep.get_key_element()}={value}"] for value in values]


def require_run(overrides: list[str]) -> None:
    """Compose what a command would run, and check its settings, rows and columns."""
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("config", overrides)
        require(cfg)


def require(cfg) -> None:
    check(cfg)
    require_list("columns", cfg.columns, COLUMNS)
    rows = expand(cfg) if cfg.experiment.rows else {}
    assert rows or not cfg.experiment.rows
    if "sweep" not in cfg.experiment:
        build_method(cfg)


def require_module(module: str, arguments: list[str]) -> None:
    """A command of the bench, with arguments that it knows."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, f"{module}: no such command"
    if not module.startswith("experiments."):
        return
    if spec.submodule_search_locations:
        module = f"{module}.__main__"
    command = importlib.import_module(module)
    assert hasattr(command, "main"), f"{module}: no command"
    if module in ("experiments.doctor", "experiments.prefetch"):
        require_run([word for word in arguments if word != "dry_run=true"])
    elif hasattr(command, "parse"):
        if arguments not in ([], ["--help"]):
            command.parse(arguments)
    else:
        known = command.OPTIONS if hasattr(command, "OPTIONS") else None
        known = getattr(command, "DEFAULTS", {"run": None}) if known is None else known
        command_options([word for word in arguments if word != "--help"], known)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text(ROOT / "Makefile"), re.MULTILINE))


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: value)
def test_commands_exist(page, command):
    words = words_of(command)
    if words[:2] == ["python", "run.py"]:
        if not any("searchpath" in word for word in words):  # another test has those
            for overrides in overrides_in_turn(words[2:]):
                require_run(overrides)
    elif words[:2] == ["python", "-m"]:
        require_module(words[2], words[3:])
    elif words[0] in ("python", "sh"):
        assert (ROOT / words[1]).is_file()
    elif words[0] == "make":
        named = [word for word in words[1:] if "=" not in word]
        assert named
        assert set(named) <= targets()
    else:
        assert words[0] in ("git", "pip", "source", "echo"), f"{command}: not checked"


def python_of(page: Path) -> list[str]:
    return [block for language, block in FENCE.findall(text(page)) if language == "python"]


@pytest.mark.parametrize("page", [p for p in PAGES if python_of(p)], ids=name)
def test_what_is_shown_as_python_runs(page, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    scope = {"__name__": "shown"}
    for block in python_of(page):
        exec(compile(block, name(page), "exec"), scope)
    if "image" in scope:
        assert scope["image"].size == (128, 128)
        assert 0 < float(capsys.readouterr().out.split()[0]) <= 1


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The files that `docs/adding.md` shows, each where its first lines say."""
    for _, block in FENCE.findall(text(ROOT / "docs" / "adding.md")):
        # Hydra wants its own header first.
        file = re.match(r"(?:# @package \S+\n)?# (\S+\.(?:py|yaml))\n", block)
        if file:
            path = tmp_path / file[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_package", None)


def test_a_method_and_an_experiment_of_ones_own(outside):
    commands = [command for _, command in COMMANDS if "hydra.searchpath" in command]
    assert len(commands) > 2
    methods, rows = set(), {}
    for command in commands:
        with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
            cfg = compose("config", words_of(command)[2:])
            require(cfg)
            for row, overrides in (expand(cfg) if cfg.experiment.rows else {"": []}).items():
                own = compose("config", [*words_of(command)[2:], *overrides])
                method = build_method(own)
                methods.add(type(method).__name__)
                rows[row] = method
    assert "Mine" in methods
    assert rows["mine_0.25"].settings() == {"name": "mine", "strength": 0.25}
    with rows["mine_0.5"].attach(None):
        pass


def test_yaml_that_is_shown_can_be_read():
    for page in PAGES:
        for language, block in FENCE.findall(text(page)):
            if language == "yaml":
                assert yaml.safe_load(block)
