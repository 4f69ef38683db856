"""Rooms import one way: the contracts in pyproject.toml, and that no room is without a purpose."""

import ast
from pathlib import Path

from commands import ROOT
from importlinter.cli import lint_imports


def test_imports_point_one_way(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT))
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert code == 0, capsys.readouterr().out


def test_each_room_says_its_purpose_in_one_sentence():
    rooms = sorted(p.parent for p in (ROOT / "experiments").glob("*/__init__.py"))
    assert len(rooms) > 10
    for room in rooms:
        tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
        purpose = ast.get_docstring(tree)
        assert purpose, room
        assert purpose.count(". ") == 0, room
        assert len(tree.body) == 1, f"{room}: importing a room imports nothing"
    flat = {p.stem for p in Path(ROOT / "experiments").glob("*.py")} - {"__init__"}
    commands = {"cite", "doctor", "evaluate", "export", "prefetch", "prepare", "publish"}
    assert flat == commands
