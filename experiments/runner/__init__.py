"""An experiment from its rows to its report: each stage, alone or all, over the run folder."""
