# The commands for people and CI. `make demo` and `make test` set up their environment in .venv: the demo what it runs with,
# everything else the tools of development on top of it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PORT ?= 3000

.DEFAULT_GOAL := help
.PHONY: help demo dev test test-fast drills lint dist docs pictures bench mutants clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1  # pip would use one processor

$(VENV)/.runs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[demo]'
	-$(COMPILE)
	touch $@

# Not after the other: resolving twice takes half a minute. What nothing imports is not compiled: two thirds of it.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev]'
	touch $(VENV)/.runs $@

demo: $(VENV)/.runs  ## Run the demo: a month of real data, processed on Spark, shown in Dagster
	$(BIN)/python -m examples.flights.demo --port $(PORT)

dev: $(VENV)/.runs  ## Run the demo and leave Dagster's UI and the pages open
	$(BIN)/python -m examples.flights.demo --port $(PORT) --keep-open

test: $(VENV)/.installed  ## Run lint, type checks, layer contract and all tests but the drills
	tests/run.sh $(BIN) test

test-fast: $(VENV)/.installed  ## Run the tests that need no server and little time
	tests/run.sh $(BIN) fast

drills: $(VENV)/.installed  ## Run the long proofs that `make test` samples: kills, faults, chaos; takes hours
	tests/run.sh $(BIN) drills

lint: $(VENV)/.installed  ## Run lint, dead code, type checks and the layer contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vulture
	$(BIN)/mypy
	$(BIN)/lint-imports

dist: $(VENV)/.runs  ## Build a wheel in dist, beside the versions with which it is tested; needs no network
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	cp constraints.txt dist

docs: $(VENV)/.installed  ## Build the site of the documents in artifacts/site; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pictures: $(VENV)/.installed  ## Make the pictures of the documents anew, in docs/pictures; needs Chromium
	$(BIN)/python -m examples.pictures

bench: $(VENV)/.installed  ## Run the benchmarks against other tools; writes artifacts/benchmarks.json
	$(BIN)/python -m benchmarks --json artifacts/benchmarks.json

mutants: $(VENV)/.installed  ## Mutate the code that decides and performs deletions; tests must catch 95 %
	$(BIN)/python -m benchmarks.mutants

clean:  ## Remove what these targets created
	rm -rf $(VENV) .demo .emulators artifacts mutants build dist
