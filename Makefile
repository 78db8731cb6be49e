# Refold. `make demo` is the place to begin.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
# extras of pyproject.toml to install besides: EXTRAS=[embeddings] brings sentence-transformers and torch, for other
# embedding models than the default one; the tests of those are skipped without
EXTRAS ?=
BIN := .venv/bin
# two a core, since tests wait for other processes most of the time; the folders that take longest come first
TEST_PROCESSES ?= $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) )))
ROUNDS ?= 10
# named after the extras (`.installed-embeddings`), so that another choice of them is installed too
comma := ,
empty :=
STAMP := .venv/.installed$(subst $(comma),-,$(subst [,-,$(subst ],,$(subst $(empty) $(empty),,$(EXTRAS)))))

.PHONY: help setup demo test production lint format bench soak clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv with everything (quick when it is there)

$(STAMP): pyproject.toml sdk/python/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Refold needs Python 3.11 or newer, and '$(PYTHON)' is none: install one, or name it: make PYTHON=python3.12 setup" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv --clear .venv
	@echo "installing into .venv (about a minute)..."
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.$(EXTRAS)' --editable './sdk/python[redis]' --group dev
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests/' .venv/lib || true  # on every core, which pip does not; some files are for other Pythons
	@touch .venv/.installed $@

demo: setup  ## a small agent runs, is killed, resumes; its state is refolded and verified
	$(BIN)/refold demo

test: setup  ## every test
	@$(BIN)/python -m compileall -q -j 0 events projections services migrations sdk/python tests  # for the processes that tests start
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

lint: setup  ## ruff, mypy --strict, the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file sdk/python/pyproject.toml sdk/python/refold
	$(BIN)/lint-imports

format: setup  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## every benchmark, printed as ratios (benchmarks/README.md)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --group bench
	@for file in $$(grep -l __main__ benchmarks/*.py); do echo "== $$file"; $(BIN)/python -m "benchmarks.$$(basename $$file .py)" || exit 1; done

production: setup  ## API and commands once more, on a Redis Cluster and PostgreSQL
	TESTS_ON=cluster-postgresql $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile \
	  tests/integration/test_api_*.py tests/integration/test_sdk_resume.py tests/acceptance/test_cli.py

soak: setup  ## the chaos tests over and over (ROUNDS=10), with other kills each time, and every point of the first round
	REFOLD_CHAOS_ALL=1 $(BIN)/python -m pytest tests/acceptance/test_cut_runs.py tests/acceptance/test_datasets.py \
	  tests/acceptance/test_demo.py tests/acceptance/test_erase.py tests/integration/test_cross_encoder.py \
	  tests/integration/test_belief_partitions.py
	@every=1; for round in $$(seq $(ROUNDS)); do echo "== round $$round"; \
	  REFOLD_CHAOS_ALL=$$every $(BIN)/python -m pytest -m chaos || exit 1; every=; done

clean:  ## remove .venv, caches and builds; data under .refold stay
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
