"""How many denoiser evaluations a generation makes."""

from __future__ import annotations


def evaluations_of(scheduler: str, steps: int) -> int:
    """U-Net evaluations of a generation: PLMS makes its second timestep twice."""
    return steps + 1 if scheduler == "plms" and steps > 1 else steps
