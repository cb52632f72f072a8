# Two commands do everything on a fresh machine: `make demo` trains real models, `make test` runs the tests.
# They need Python 3.11 or newer, git and make; everything else goes into .venv and the cache folder.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
DISTS  := schemas manifests core plugins/pytorch plugins/trl plugins/verl plugins/openrlhf plugins/nemo-rl plugins/custom plugins/judge plugins/evalkit plugins/fleet-kubernetes plugins/fleet-ray plugins/fleet-slurm
EDIT   := $(foreach dist,$(DISTS),-e $(dist))
FLEETS := $(wildcard plugins/fleet-*)
STAMPS := pyproject.toml constraints.txt $(DISTS:%=%/pyproject.toml)
SOURCE := core/src plugins/pytorch/src plugins/trl/src plugins/verl/src plugins/openrlhf/src plugins/nemo-rl/src plugins/custom/src plugins/judge/src plugins/evalkit/src plugins/fleet-kubernetes/src plugins/fleet-ray/src plugins/fleet-slurm/src

.PHONY: demo test lint check check-kills check-others sweep engine engine-fleets engine-frameworks engines upstream runtimes bench clean

demo: $(VENV)/installed
	$(BIN)/python demo/demo.py

test: lint check

# The kills run in one process: they fork, which wants a single thread, and count together. They mostly wait, so
# they run beside the others.
check: $(VENV)/dev
	$(MAKE) --jobs 2 check-kills check-others

check-kills:
	$(BIN)/pytest --quiet core/tests/test_jobs_kills.py

check-others:
	$(BIN)/pytest -n 2 -m "not engine and not upstream and not kills"

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCE)
	$(BIN)/lint-imports

# All cases of the tests of which `make test` runs a part.
sweep: $(VENV)/dev
	TUNEPORT_TEST_SWEEP=all $(BIN)/pytest -n 2 -m "sweep and not engine and not upstream"

# Tests that need a runtime with a real framework in it; the first run builds the runtimes. Engines of fleets
# mostly wait, frameworks mostly compute, so the two halves run side by side.
engine: runtimes engines
	$(MAKE) --jobs 2 --output-sync=target engine-fleets engine-frameworks

engine-fleets:
	$(BIN)/pytest -m "engine and not upstream" $(FLEETS) tests

engine-frameworks:
	$(BIN)/pytest -m "engine and not upstream" core/tests $(filter-out $(FLEETS), $(wildcard plugins/*))

# Tests that ask Hydra itself, or a release too large for every run; they build their environments.
upstream: $(VENV)/dev
	$(BIN)/pytest -m upstream

runtimes: $(VENV)/dev
	$(BIN)/tp runtime install pytorch@2.13.0 --variant cpu
	$(BIN)/tp runtime install trl@1.10.0 --variant cpu
	$(BIN)/tp runtime install trl@1.16.0 --variant cpu
	$(BIN)/tp runtime install evalkit@lm-eval-0.4.13 --variant cpu
	$(BIN)/tp runtime install evalkit@evalscope-1.14.1 --variant cpu

# What fleets are tested against: a real Slurm, a real Ray, and the API of a real Kubernetes, started and ended
# by the tests. Kubernetes has to be built, once, in ten minutes.
engines:
	-tools/engines/kubernetes.sh install
	-tools/engines/slurm.sh install
	tools/engines/ray.sh install

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
