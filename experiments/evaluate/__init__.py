"""Metrics of painted images: one a file behind one entry point, features computed once and kept."""

from experiments.evaluate.entry import evaluate_rows, keep_features
from experiments.evaluate.scores import Scores
from experiments.evaluate.settings import check_metrics

__all__ = ["Scores", "check_metrics", "evaluate_rows", "keep_features"]
