"""Tables and plots from what the stages of an experiment left in its folder."""

from experiments.report.entry import write_report

__all__ = ["write_report"]
