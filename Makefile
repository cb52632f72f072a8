# Two commands do everything on a fresh machine: `make demo` trains real models, `make test` runs the tests.
# They need Python 3.11 or newer, git and make; everything else goes into .venv and the cache folder.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
DISTS  := schemas manifests core plugins/pytorch plugins/trl plugins/verl plugins/openrlhf plugins/custom
EDIT   := $(foreach dist,$(DISTS),-e $(dist))
STAMPS := pyproject.toml constraints.txt $(DISTS:%=%/pyproject.toml)
SOURCE := core/src plugins/pytorch/src plugins/trl/src plugins/verl/src plugins/openrlhf/src plugins/custom/src

.PHONY: demo test lint check engine upstream runtimes bench clean

demo: $(VENV)/installed
	$(BIN)/python demo/demo.py

test: lint check

# The kills run in one process: they fork, which wants a single thread, and count together.
check: $(VENV)/dev
	$(BIN)/pytest -n 2 -m "not engine and not upstream and not kills"
	$(BIN)/pytest core/tests/test_jobs_kills.py

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCE)
	$(BIN)/lint-imports

# Tests that need a runtime with a real framework in it; the first run builds the runtimes.
engine: runtimes
	$(BIN)/pytest -m engine

# Tests that ask Hydra itself, or a release too large for every run; they build their environments.
upstream: $(VENV)/dev
	$(BIN)/pytest -m upstream

runtimes: $(VENV)/dev
	$(BIN)/tp runtime install pytorch@2.13.0 --variant cpu
	$(BIN)/tp runtime install trl@1.10.0 --variant cpu
	$(BIN)/tp runtime install trl@1.16.0 --variant cpu

bench: $(VENV)/dev
	$(BIN)/python tools/bench.py

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tuneport needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/python $(STAMPS)
	@echo "installing Tuneport into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(EDIT)
	@touch $@

$(VENV)/dev: $(VENV)/installed
	@echo "installing the test tools into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) demo-run
