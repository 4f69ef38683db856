"""Texts from captions, errors and configs made harmless in Markdown and in LaTeX."""

from __future__ import annotations

import re

_MARKDOWN = {c: f"\\{c}" for c in "\\`*|[]~"} | {"<": "&lt;", "&": "&amp;"}
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "—": "---",
    "–": "--",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "≈": r"$\approx$",
    "…": r"\dots{}",
    "²": r"$^2$",
    "’": "'",
    "‘": "`",
    "“": "``",
    "”": "''",
}


def one_line(text: object) -> str:
    """White space collapsed, control characters gone."""
    printable = (c if c.isprintable() or c.isspace() else "" for c in str(text))
    return " ".join("".join(printable).split())


def markdown(text: object) -> str:
    """Text that a Markdown renderer shows as it is, also in a table's cell.

    Underscores within words mean nothing, and escaped they are hard to read: they are left alone.
    """
    escaped = "".join(_MARKDOWN.get(c, c) for c in one_line(text))
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)


def latex(text: object) -> str:
    """Text that LaTeX sets as it is; what its default fonts lack appears as a code point."""
    out = []
    for c in one_line(text):
        if c in _LATEX:
            out.append(_LATEX[c])
        elif ord(c) < 128 or (0xC0 <= ord(c) <= 0xFF and c.isalpha() and c not in "ÐðÞþ"):
            out.append(c)
        else:
            out.append(f"[U+{ord(c):04X}]")
    # A pair of signs that LaTeX would join into one, as in ?` for an inverted question mark.
    return re.sub(r"([?!])`", r"\1{}`", "".join(out))
