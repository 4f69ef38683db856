"""The baseline: the pipeline as it is."""

from experiments.accelerators.base import Method


class NoMerging(Method):
    revision = 1

    def __init__(self, name: str = "none", label: str = "Baseline"):
        super().__init__(name)
        self.label = label

    def columns(self) -> dict:
        return {**super().columns(), "method": self.label}
