import re

from hypothesis import given
from hypothesis import strategies as st

from experiments.metrics.csv_cells import escape_cell, restore_cell
from experiments.report.escape import latex, markdown, one_line

ANY = st.text() | st.text(alphabet="\\{}$&#%_^~<>|\"'`?!=+-@ \n\ta", max_size=30)
# What may follow a backslash in escaped LaTeX.
COMMANDS = (
    r"\\(textbackslash\{\}|textasciicircum\{\}|textasciitilde\{\}|textless\{\}|textgreater\{\}"
    r"|textbar\{\}|dots\{\}|[{}$&#%_])"
)


@given(ANY)
def test_latex_leaves_no_active_character(text):
    escaped = latex(text)
    rest = re.sub(r"\$(\\times|\\cdot|\\pm|\\uparrow|\\downarrow|\\dagger|\^2)\$", "", escaped)
    rest = re.sub(COMMANDS, "", rest)
    assert not re.search(r"[\\$&#%_^~<>|\"\n]", rest), rest
    assert rest.replace("{}`", "").count("{") == 0


@given(ANY)
def test_markdown_stays_on_one_line_in_its_cell(text):
    escaped = markdown(text)
    assert "\n" not in escaped
    bare = re.sub(r"\\[\\`*|\[\]~_]", "", escaped)
    assert not re.search(r"[\\`*|\[\]<~]", bare)
    assert not re.search(r"\b_|_\b", re.sub(r"(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])", "", bare))


@given(ANY)
def test_csv_cells_are_no_formulas_and_come_back(text):
    cell = escape_cell(text)
    assert restore_cell(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_readable_text_stays_readable():
    assert markdown("T0.7_config3: 1.2 × 3") == "T0.7_config3: 1.2 × 3"
    assert latex("speed-up 1.14× (1.09–1.21) ±") == r"speed-up 1.14$\times$ (1.09--1.21) $\pm$"
    assert latex("naïve 漢") == "naïve [U+6F22]"
    assert one_line(" a\n\tb\x00 ") == "a b"
    assert escape_cell(-1.5) == -1.5
