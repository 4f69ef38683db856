"""What a method would see in the baseline, watched without changing an image."""

from experiments.observe.entry import OBSERVATIONS, observe

__all__ = ["OBSERVATIONS", "observe"]
