"""The table as Markdown for terminal and README, as LaTeX (booktabs), and a CSV of everything."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
from tabulate import tabulate

from experiments.metrics.csv_cells import escape_cell
from experiments.report.escape import latex, markdown, one_line
from experiments.report.run_folder import Run
from experiments.report.table import Table


def to_markdown(title: str, table: Table, notes: list[str], card: list[str]) -> str:
    """A heading, the table with aligned columns, the notes and the protocol card as lists."""
    rows = [[markdown(cell) for cell in row] for row in table.rows]
    if 0 < table.apart < len(rows):
        # Markdown has no rule inside a table.
        rows.insert(table.apart, ["*apart:*"] + [""] * (len(table.heads) - 1))
    text = tabulate(
        rows,
        headers=[markdown(head) for head in table.heads],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if numeric else "left" for numeric in table.numeric],
    )
    parts = [f"## {markdown(title)}", text]
    parts += ["\n".join(f"- {markdown(note)}" for note in notes)] if notes else []
    if card:
        parts += ["**Protocol**", "\n".join(f"- {markdown(line)}" for line in card)]
    return "\n\n".join(parts)


def to_latex(title: str, table: Table, notes: list[str], card: list[str]) -> str:
    """A `table` environment for \\usepackage{booktabs}, notes and card in small print below."""

    def line(cells: list[str]) -> str:
        # A row that begins with [ would be taken for an argument of the \\ before it.
        return " & ".join(latex(cell) for cell in cells).replace("[", "{[}") + r" \\"

    rows = [line(row) for row in table.rows]
    if 0 < table.apart < len(rows):
        rows.insert(table.apart, r"\midrule")
    alignment = "".join("r" if numeric else "l" for numeric in table.numeric)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex(title)}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            line(table.heads),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
            r"\begin{minipage}{\linewidth}\footnotesize",
            *[rf"{latex(note)}\par" for note in notes + card],
            r"\end{minipage}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(run: Run) -> pd.DataFrame:
    """Every figure and its settings, one line a row of the experiment.

    Columns: `row status error apart`, the method's columns, `images merged_share`, each quality
    figure with ` n`, its 95 % interval ` low` and ` high`, the same of its paired difference
    ` minus baseline`, and what stands beside it (a 5th percentile), `equal <scheduler> steps` with
    the differences from the baseline of so many, `published ...`, `timing ...`, `environment ...`
    and `setting ...`; texts that a spreadsheet takes for formulas are escaped.
    """
    timing = run.timing or {}
    shared = {f"timing {key}": timing.get(key) for key in ("batch_size", "repeats", "warmup")}
    lines = []
    for row in run.rows:
        line: dict[str, Any] = {
            "row": row.name,
            "status": row.record["status"],
            "error": row.record.get("error"),
            "apart": row.apart,
            "against": row.record.get("against"),
            "order_dependent": row.record.get("order_dependent"),
            **row.columns,
            "images": run.images(row),
            "merged_share": row.merged_share,
        }
        for column in run.quality_columns():
            line[column] = run.figure(row, column)
            line[f"{column} n"] = run.count(row, column)
            for what, found in (
                ("", run.interval(row, column)),
                (" minus baseline", run.difference(row, column)),
            ):
                if what:
                    line[f"{column}{what}"] = found and found.value
                line[f"{column}{what} low"] = found and found.low
                line[f"{column}{what} high"] = found and found.high
            for what, value in run.beside(row, column).items():
                line[f"{column} {what}"] = value
        for scheduler, equal in run.equivalents.get(row.name, {}).items():
            line[f"equal {scheduler} steps"] = equal.steps
            for metric, found in equal.differences.items():
                line[f"{metric} minus equal {scheduler}"] = found.value
                line[f"{metric} minus equal {scheduler} low"] = found.low
                line[f"{metric} minus equal {scheduler} high"] = found.high
        if run.experiment.get("published"):
            found = row.published
            line["published FID"] = found and found.fid
            line["published seconds_per_image"] = found and found.seconds_per_image
            line["published gpu"] = found and found.gpu
            line["published source"] = found and found.source
        line |= {f"timing {k}": v for k, v in row.timing.items() if k != "merged_share"}
        line |= shared | {f"environment {k}": v for k, v in timing.get("environment", {}).items()}
        line |= {f"setting {k}": v for k, v in (row.record.get("settings") or {}).items()}
        lines.append({key: _cell(value) for key, value in line.items()})
    frame = pd.DataFrame(lines, dtype=object)
    return frame.rename(columns=escape_cell)


def _cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        value = json.dumps(value, ensure_ascii=False)
    return escape_cell(one_line(value)) if isinstance(value, str) else value
