"""Metrics of images: one a file behind one entry point, features computed once and kept."""
