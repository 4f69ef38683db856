"""Seconds, work and memory of generations: turns, stopwatch, counted operations."""
