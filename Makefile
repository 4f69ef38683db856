VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
WORKERS ?= 2
PIP := $(BIN)/pip install --quiet --constraint constraints.txt

help:  ## these lines
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: | $(BIN)/python  ## other CUDA builds: make install TORCH_INDEX=https://download.pytorch.org/whl/cu118
	$(BIN)/pip install --quiet torch torchvision $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	grep -vE '^torch(vision)?==' constraints.txt > $(VENV)/constraints.txt
	$(BIN)/pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[experiments]'
	@touch $(VENV)/.experiments

demo: $(VENV)/.experiments  ## install, then paint, measure and tabulate the cache ablation
	$(BIN)/python run.py +experiment=ablation_cache

test: $(VENV)/.test  ## install, then run the tests, files side by side: make test WORKERS=4
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile

test-long: $(VENV)/.test  ## the tests that take minutes
	$(BIN)/python -m pytest -m long

bench: $(VENV)/.test  ## speed against the peers (45 minutes on two cores in fp32)
	$(BIN)/python -m experiments.bench full=false

bench-full: $(VENV)/.test  ## all ratios, 1024 px, SDXL and memory (hours); goes on where it stopped
	$(BIN)/python -m experiments.bench full=true

lint: $(VENV)/.test  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.experiments: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[experiments]'
	@touch $@

# The peers' own pins are stale: they are installed without their dependencies.
$(VENV)/.test: $(VENV)/.experiments
	$(PIP) --editable '.[experiments,test]'
	$(PIP) --no-deps tomesd==0.1.3 ca-tome==0.1.3
	@touch $@

.PHONY: help install demo test test-long bench bench-full lint
.DEFAULT_GOAL := help
