"""An experiment as jobs: SLURM arrays, a worker a GPU, snapshots of the code."""
