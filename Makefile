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

$(VENV)/spark.jsa: $(VENV)/.installed
	$(BIN)/python -m tests.java_start

test: $(VENV)/spark.jsa lint  ## Lint, types, layers and all tests
	@mkdir -p artifacts; echo "tests with Spark, beside the others; what they say comes at the end"; \
	$(BIN)/python -m pytest -m spark -n 2 --dist loadfile --no-loadscope-reorder > artifacts/spark-tests.log 2>&1 & spark=$$!; \
	$(BIN)/python -m pytest -m "not spark" -n 2 --dist loadfile --no-loadscope-reorder; others=$$?; \
	wait $$spark; with_spark=$$?; cat artifacts/spark-tests.log; exit $$((others + with_spark))

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
