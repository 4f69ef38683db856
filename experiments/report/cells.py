"""What stands in cells: marks, and numbers as texts."""

from __future__ import annotations

NONE = "—"
DAGGER = "†"
DOUBLE_DAGGER = "‡"
UNDECIDED = "≈"  # no difference is shown
ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}


def seconds(value: float | None) -> str:
    """Three figures below ten seconds, one decimal above."""
    if value is None:
        return NONE
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.1f}"


def setting(value: object) -> str:
    if value is None:
        return NONE
    return f"{value:g}" if isinstance(value, float) else str(value)


def number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.0f} %"


def gflops(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
