#!/bin/sh
# The reference runs of the toy world, whose figures are kept in results/toy: nine rows with 128
# held-out captions each (75 minutes on two CPU cores), then the controls, the schedules, the two
# observations and matching within windows (about as long again, and a little). What is there already
# is not painted again.
#
#     sh scripts/reference_run.sh [reference | controls | find_schedule | similarity |
#         pair_overlap | window]...
set -e
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
EXPERIMENTS=${*:-reference controls find_schedule similarity pair_overlap window}

for NAME in $EXPERIMENTS; do
  RUN="run.py +experiment=$NAME generation.batch_size=8"
  OUT=results/toy/$NAME
  case $NAME in
    reference) RUN="$RUN prompts.limit=128 timing.repeats=7" OUT=results/toy ;;
    window) RUN="$RUN timing.repeats=7" ;;
    similarity | pair_overlap) $PYTHON $RUN; $PYTHON -m experiments.publish run=results/runs/toy/$NAME out=$OUT; continue ;;
  esac
  OMP_NUM_THREADS=1 $PYTHON $RUN stages=[generate] hydra/launcher=local_gpus hydra.launcher.workers=2
  $PYTHON $RUN stages=[evaluate,time,report]
  $PYTHON -m experiments.publish run=results/runs/toy/$NAME out=$OUT
done
