"""The best k checkpoints for a matrix of re-use costs, by dynamic programming."""

from __future__ import annotations

import numpy as np


def best_checkpoints(costs: np.ndarray, count: int) -> tuple[list[int], float]:
    """`count` evaluations, the first of them 0, at which to match for the least total cost.

    Args:
        costs: (S, S) of using the match of s at t >= s; entries below the diagonal are not read.
        count: from 1 to S.

    Returns:
        The evaluations in order, and the sum of the costs of all S evaluations.
    """
    length = len(costs)
    # spans[s, e]: cost of evaluations s to e - 1 with the match of s.
    spans = np.full((length, length + 1), np.inf)
    for s in range(length):
        spans[s, s + 1 :] = np.cumsum(costs[s, s:])
    least = np.full((count + 1, length + 1), np.inf)
    least[0, 0] = 0.0
    chosen = np.zeros((count + 1, length + 1), int)
    for k in range(1, count + 1):
        totals = least[k - 1][:length, None] + spans
        chosen[k] = totals.argmin(axis=0)
        least[k] = totals.min(axis=0)
    steps, end = [], length
    for k in range(count, 0, -1):
        end = int(chosen[k, end])
        steps.append(end)
    return steps[::-1], float(least[count, length])


def cost_of(costs: np.ndarray, steps: list[int]) -> float:
    """Total cost of a list of checkpoints; evaluation 0 always matches, and entries beyond the
    last evaluation are never reached."""
    starts = sorted({0, *(s for s in steps if s < len(costs))})
    ends = [*starts[1:], len(costs)]
    return float(sum(costs[s, s:e].sum() for s, e in zip(starts, ends, strict=True)))


def random_checkpoints(length: int, count: int, seed: int) -> list[int]:
    """0 and `count` - 1 other evaluations below `length`."""
    others = np.random.default_rng(seed).choice(np.arange(1, length), count - 1, replace=False)
    return [0, *sorted(int(s) for s in others)]
