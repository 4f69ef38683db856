"""What `python -m experiments.<name>` commands share: help, errors in one line, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable


def run(
    argv: list[str],
    usage: str,
    work: Callable[[list[str]], str],
    expected: type[Exception] = ValueError,
) -> int:
    """Print what `work` returns, or why it cannot; returns the exit code.

    Args:
        expected: what bad input raises; any other exception goes up with its traceback.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(usage)
        return 0 if argv else 2
    try:
        print(work(argv))
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept, the same command goes on", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 1
    except expected as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0
