"""Why merging works: observations of the baseline, and schedules found from a trace."""
