"""The notebooks run from top to bottom, and are committed with outputs."""

import nbformat
import pytest
from commands import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    assert any(cell.outputs for cell in code), "committed without outputs"
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert "error" not in kinds
    assert path.stat().st_size < 2**20
    fresh = nbformat.read(path, as_version=4)
    NotebookClient(fresh, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()


def test_notebooks_say_nothing_of_the_machine_they_ran_on():
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert "/home/" not in text
        assert str(ROOT) not in text
        assert "Warning" not in text
