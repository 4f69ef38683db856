"""Rows as tasks of a SLURM cluster, through submitit."""
