"""The bench: run from a checkout through `run.py`; imports `catome`, never the other way round."""
