# Every command that people and CI use. `make demo` and `make test` set up what they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PORT ?= 3000

.DEFAULT_GOAL := help
.PHONY: help demo dev test lint bench mutants clean

help:  ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed  ## Let a real month arrive, be processed on Spark and appear in Dagster
	$(BIN)/python -m examples.flights.demo --port $(PORT)

dev: $(VENV)/.installed  ## The demo with Dagster's UI left open
	$(BIN)/python -m examples.flights.demo --port $(PORT) --keep-open

test: $(VENV)/.installed  ## Lint, types, layers and all tests
	tests/run.sh $(BIN)

lint: $(VENV)/.installed  ## Lint, types and the layer contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed  ## Measure against named peers; writes artifacts/benchmarks.json
	$(BIN)/python -m benchmarks --json artifacts/benchmarks.json

mutants: $(VENV)/.installed  ## Change what decides and does deletions; tests must notice 95 %
	$(BIN)/python -m benchmarks.mutants

clean:  ## Remove what the commands above have made
	rm -rf $(VENV) .demo artifacts mutants
