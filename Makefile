# Everything a contributor or a new user does. `make run` and `make test` need nothing but Python 3.11+, git and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOB ?= examples/cartpole-ppo.yaml
# One thread a process: two cores are shared by tests, Ray and its actors.
TEST_ENV := OMP_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help install run test test-long lint format crds bench clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## Make .venv and install rlcore with everything it can use.

$(STAMP): pyproject.toml operator/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rlcore needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt \
		--editable '.[all,cluster]' --editable ./operator --group dev
	@touch $@

run: $(STAMP)  ## Train CartPole-v1 to a mean episode reward of 475 (JOB=... for another manifest).
	$(BIN)/rlcore run $(JOB)

test: $(STAMP)  ## Every test that this machine can run.
	$(TEST_ENV) $(BIN)/python -m pytest $(PYTEST_ARGS)

test-long: $(STAMP)  ## Learning tests that take hours on two cores; curves go to docs/results/.
	$(TEST_ENV) $(BIN)/python -m pytest -m long tests/learning $(PYTEST_ARGS)

lint: $(STAMP)  ## What pre-commit and CI check.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m rlcore.api.crd --check

format: $(STAMP)  ## Format and mend what can be mended.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

crds: $(STAMP)  ## Write crds/ anew from rlcore/api.
	$(BIN)/python -m rlcore.api.crd

bench: $(STAMP)  ## Speed, side by side with other libraries; the table goes to docs/benchmarks.md.
	$(BIN)/python -m benchmarks

clean:  ## Remove what the other targets made, runs/ excepted.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
