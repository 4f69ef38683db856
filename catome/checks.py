"""One-line errors that name the key, its value and what is allowed."""

from numbers import Integral, Real


def require(ok: bool, key: str, value: object, allowed: str) -> None:
    """Raise `ValueError("key=value: must be allowed")` unless `ok`."""
    if not ok:
        raise ValueError(f"{key}={value!r}: must be {allowed}")


def is_integer(value: object) -> bool:
    """Whether `value` is an integer (NumPy's count, booleans do not)."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether `value` is a finite real number (booleans are not)."""
    return isinstance(value, Real) and not isinstance(value, bool) and abs(value) < float("inf")
