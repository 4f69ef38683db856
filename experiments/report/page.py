"""`report.html`: table, plots, pictures and protocol of a run in one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

import jinja2
from plotly.offline import get_plotlyjs

from experiments.common.files import write_text
from experiments.report.card import card_of
from experiments.report.charts import SWEEP, charts_of
from experiments.report.notes import notes_of
from experiments.report.pictures import pictures_of
from experiments.report.run_folder import Run
from experiments.report.table import build_table

HERE = Path(__file__).parent
CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}


def write_page(run: Run, path: Path) -> None:
    """Write the page of a run; parts whose stage was not run are left out.

    All texts of captions, names and errors are escaped; a content security policy forbids the page
    any request.
    """
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    charts = charts_of(run)
    drawn = [
        (name, figure.to_html(full_html=False, include_plotlyjs=False, config=CONFIG,
                              div_id=f"chart-{i}"))
        for i, (name, figure) in enumerate(charts)
    ]  # fmt: skip
    script = (HERE / "page.js").read_text(encoding="utf-8")
    prompts = run.manifest.get("prompts") or []
    page = templates.get_template("page.html.j2").render(
        title=run.experiment.get("title") or run.experiment["name"],
        subtitle=f"{run.experiment['name']}, benchmark {run.experiment.get('benchmark')}",
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        table=build_table(run),
        notes=notes_of(run),
        card=card_of(run),
        plotly=get_plotlyjs() if charts else "",
        charts=drawn,
        sweep=SWEEP,
        pictures=pictures_of(run),
        images=len(prompts),
        script=script,
    )
    write_text(path, page)
