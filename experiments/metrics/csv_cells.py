"""Text in CSV cells that a spreadsheet must not take for a formula.

A cell that begins with `= + - @` or white space gets a leading apostrophe, the usual escape; so
does one that begins with an apostrophe, which makes the escape reversible.
"""

from __future__ import annotations

_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def escape_cell(value: object) -> object:
    """The value, a string among them escaped; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_STARTS) else value


def restore_cell(value: object) -> object:
    """Undo `escape_cell`."""
    return value[1:] if isinstance(value, str) and value.startswith("'") else value
