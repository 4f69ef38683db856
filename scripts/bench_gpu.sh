#!/bin/sh
# The benchmark's GPU part: U-Net evaluations of SD v1.5 with random weights made on the device, in
# fp16 and bf16, with fused and plain attention, at 1, 4 and the largest number of images that fits.
# Stopped after eight minutes; results/bench/bench.md is the table of what was measured by then, and
# the same command goes on. Never run on CUDA yet.
#
#     sh scripts/bench_gpu.sh [device=cuda:1 out=results/bench_h100 ...]
set -e
cd "$(dirname "$0")/.."
exec timeout --signal=INT 480 "${PYTHON:-.venv/bin/python}" -m experiments.bench 'groups=[gpu]' device=cuda "$@"
