"""The report stage: needs no model and no network, only the folder of a run."""

from __future__ import annotations

from pathlib import Path

from experiments.common.files import write_atomically, write_json, write_text
from experiments.report.card import card_of, protocol_of
from experiments.report.formats import to_csv, to_latex, to_markdown
from experiments.report.grid import plot_grid
from experiments.report.notes import notes_of
from experiments.report.page import write_page
from experiments.report.plots import plot_against_seconds, plot_along_swept_key
from experiments.report.run_folder import read_run
from experiments.report.table import build_table


def write_report(folder: Path) -> str:
    """Write `table.csv`, `table.md`, `table.tex`, `protocol.json`, `plots/` and `report.html`
    into a run's folder.

    Files that a stage has not written yet make cells "—" and a note that names the stage.

    Args:
        folder: holds `experiment.json` and `rows/`; see `experiments.report.run_folder`.

    Returns:
        The Markdown table with its notes and protocol card, as written to `table.md`.

    Raises:
        FileNotFoundError: there is no `experiment.json`.
    """
    folder = Path(folder)
    run = read_run(folder)
    table, notes, card = build_table(run), notes_of(run), card_of(run)
    title = run.experiment.get("title") or run.experiment["name"]
    markdown = to_markdown(title, table, notes, card)
    write_json(folder / "protocol.json", protocol_of(run))
    write_text(folder / "table.md", markdown + "\n")
    write_text(folder / "table.tex", to_latex(title, table, notes, card))
    frame = to_csv(run)
    write_atomically(folder / "table.csv", lambda beside: frame.to_csv(beside, index=False))
    plots = folder / "plots"
    plot_against_seconds(run, plots)
    plot_along_swept_key(run, plots)
    plot_grid(run, plots)
    write_page(run, folder / "report.html")
    return markdown
