#!/bin/sh
# The benchmark's GPU part: U-Net evaluations of SD v1.5 with random weights made on the device, in
# fp16 and bf16, with fused and plain attention, at 1, 4 and the largest number of images that fits.
# At most eight minutes on one GPU; the table is results/bench/bench.md.
#
#     sh scripts/bench_gpu.sh [device=cuda:1 out=results/bench_h100 ...]
set -e
cd "$(dirname "$0")/.."
exec timeout --signal=INT 480 "${PYTHON:-.venv/bin/python}" -m experiments.bench 'groups=[gpu]' device=cuda "$@"
