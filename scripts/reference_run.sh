#!/bin/sh
# The reference run of the toy world: nine rows, 128 held-out captions each, two rows three times
# with other seeds (75 minutes on two CPU cores). What it measured is kept in results/toy.
set -e
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
RUN="run.py +experiment=reference prompts.limit=128 generation.batch_size=8 timing.repeats=7"
OMP_NUM_THREADS=1 $PYTHON $RUN stages=[generate] hydra/launcher=local_gpus hydra.launcher.workers=2
$PYTHON $RUN stages=[evaluate,time,report]
$PYTHON -m experiments.publish run=results/runs/toy/reference out=results/toy
