# The environment is .venv. Each step of its setup leaves a stamp in it, so a second call is fast.
PYTHON ?= python3
# Exactly this one: a plain `torch` may bring gigabytes of CUDA packages along.
TORCH ?= torch==2.13.0
TENSORFLOW ?= tensorflow-cpu==2.21.0
TF_KERAS ?= tf_keras==2.21.0
BUILDER ?= 'jupyter-builder>=1.2,<2'
# Tests at a time; each starts a few processes of its own. One more is hardly faster, at twice the load, and
# some then wait for others until they give up.
JOBS ?= $(shell nproc)

# What CI installs: the versions of the last green run, on the Python that they were written down for.
PINS := tests/constraints.txt
PINNED := $(shell sed -n '1s/^. Python //p' $(PINS) 2>/dev/null)
CONSTRAINTS ?= $(if $(PINNED),$(shell $(PYTHON) -c 'import sys; print("-c $(PINS)" if sys.version.startswith("$(PINNED).") else "")'))
# --pre takes releases that are not final yet.
PRE ?=
GROUPS ?=

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PRE) $(CONSTRAINTS)
SUITE := PYTHONPATH=. $(BIN)/python tools/suite.py --jobs $(JOBS)
# npm's store holds packages by their hash: a fresh clone downloads nothing that was seen before.
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --cache "$${XDG_CACHE_HOME:-$$HOME/.cache}/jupyter-dist/npm"
FRONTEND := $(shell find labextension -type f -not -path 'labextension/lib/*' -not -path 'labextension/tests/*')
# What is here decides what is built and tested; asked again after Debian's packages were installed.
NODE := $(shell node -e 'process.exitCode = +(parseInt(process.versions.node) < 20)' 2>/dev/null && command -v npm)
MPI := $(shell command -v mpirun >/dev/null && command -v mpicxx)
ifneq ($(filter-out 0,$(JUPYTER_DIST_REQUIRE_ALL)),)
NODE := required
MPI := required
endif
JS := $(if $(NODE),$(VENV)/.js)
HOROVOD := $(VENV)/.horovod-$(if $(MPI),mpi,gloo)

# Where it is set, each of the thousands of processes of a test run compiles all it imports of ours.
unexport PYTHONDONTWRITEBYTECODE

# What decides what is installed, besides files: tools/kept_setup.py. MPI is asked for when a recipe runs, since
# Debian's packages come with the first one.
KEPT_FOR = '$(TORCH)' '$(TENSORFLOW)' '$(TF_KERAS)' $(BUILDER) '$(PRE)$(CONSTRAINTS)' \
	"$$(command -v mpirun >/dev/null && command -v mpicxx)"

# sshd, ip and slurmd are there, where Debian's users do not look.
export PATH := $(PATH):/usr/sbin:/sbin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo lab check check-python check-types check-js bench clean
.PHONY: test test-js test-engines test-changed test-gpu test-newest test-pythons newest set-up made

help: ## List what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Train on 2 workers, without a browser, and print what each got
	$(BIN)/python tools/run_notebook.py notebooks/quickstart.ipynb

lab: $(VENV)/.lab $(VENV)/.js ## Open the notebooks in JupyterLab; ARGS="--allow-root" and the like are for it
	$(BIN)/jupyter lab $(ARGS) notebooks/quickstart.ipynb

check: check-python check-types check-js ## Lint, formatting, types

check-python: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/answers.py --check
	$(BIN)/python tools/plain_words.py

check-types: $(VENV)/.test
	$(BIN)/python -m mypy

check-js: $(VENV)/.test $(JS)
	$(call npm,run -s check)

test-js: $(VENV)/.test $(JS)
	$(call npm,test)

# Each step in a make of its own, which sees what the one before has installed.
test: set-up ## Check, then the core of the tests; JUPYTER_DIST_REQUIRE_ALL=1 makes a skip a failure
	@$(MAKE) --no-print-directory -j2 --output-sync=target check test-js
	$(SUITE) core

test-engines: set-up ## All other tests, or those of GROUPS="ray spark"
	$(SUITE) engines $(GROUPS)

test-changed: set-up ## Of the other tests those that a change touches, and some in turn, as CI does
	$(SUITE) changed

test-newest: ## The core with the newest releases of everything; PRE=--pre takes those too that are not final
	@tools/debian_packages tests '$(PYTHON)'
	@$(MAKE) --no-print-directory VENV=.venv-newest CONSTRAINTS= newest

newest: made
	$(SUITE) --note-nothing core
	$(BIN)/python tools/pins.py $(PINS)

test-gpu: ## What needs an NVIDIA GPU, with the Python and the torch that are there: PYTHON says which
	PYTHONPATH=. $(PYTHON) -m pytest -q -n 0 -p no:cacheprovider tests/gpu

test-pythons: $(VENV)/.python ## The tests that need no engine on each other Python of this machine
	JOBS=$(JOBS) $(BIN)/python tools/pythons.py

set-up:
	@tools/debian_packages tests '$(PYTHON)'
	@$(PYTHON) tools/kept_setup.py restore $(KEPT_FOR)
	@$(MAKE) --no-print-directory -j2 --output-sync=target made
	@$(PYTHON) tools/kept_setup.py keep $(KEPT_FOR)

made: $(VENV)/.test $(JS) $(HOROVOD) $(VENV)/.sagemaker $(VENV)/.azurite $(VENV)/.kubernetes $(VENV)/.pythons

npm = $(if $(NODE),$(NPM) $(1),@echo "skipped: npm $(1): it needs Node 20 or newer, https://nodejs.org" >&2)

bench: $(VENV)/.bench $(VENV)/.js ## Measure against the peers, in one run
	$(BIN)/python -m benchmarks

clean: ## Remove the environment and what was built
	rm -rf .venv .venv-newest build dist node_modules .mypy_cache .ruff_cache .pytest_cache
	rm -rf labextension/lib jupyter_dist/labextension jupyter_dist/static

$(VENV)/.python:
	@tools/debian_packages demo '$(PYTHON)'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Python 3.10 or newer is needed as '$(PYTHON)', or make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "'$(PYTHON)' cannot make a virtual environment: it lacks venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(PIP) $(TORCH) -e '.[demo]'
	touch $@

$(VENV)/.lab: $(VENV)/.demo
	$(PIP) $(TORCH) jupyterlab ipywidgets
	touch $@

# pip works out once what fits together. tf_keras asks for the full tensorflow, which the CPU build is not
# by name: hence --no-deps.
$(VENV)/.test: $(VENV)/.python pyproject.toml $(wildcard $(PINS))
	$(PIP) $(TORCH) $(TENSORFLOW) $(BUILDER) -e '.[test]'
	$(PIP) --no-deps $(TF_KERAS)
	touch $@ $(VENV)/.demo $(VENV)/.lab

# Minutes the first time; the wheel is kept under ~/.cache/jupyter-dist for the same versions. Where it
# cannot be built, the tests that need it are skipped.
$(HOROVOD): $(VENV)/.test jupyter_dist/commands/horovod_build.py jupyter_dist/commands/horovod_recipe.py
	rm -f $(VENV)/.horovod-*
	if $(BIN)/jupyter dist install-horovod $(if $(MPI),,--without-mpi); then touch $@; \
	elif [ -n "$(filter-out 0,$(JUPYTER_DIST_REQUIRE_ALL))" ]; then exit 1; \
	else echo "skipped: the tests of Horovod" >&2; fi

# AWS's own toolkits, which its containers run; kept under ~/.cache/jupyter-dist. Without them, the tests of
# SageMaker are skipped.
$(VENV)/.sagemaker: $(VENV)/.test tests/rigs/made_once.py tests/rigs/sagemaker/toolkits.py
	if $(BIN)/python -c 'from tests.rigs.sagemaker.toolkits import toolkits; toolkits()'; then touch $@; \
	elif [ -n "$(filter-out 0,$(JUPYTER_DIST_REQUIRE_ALL))" ]; then exit 1; \
	else echo "skipped: the tests of SageMaker" >&2; fi

# A Kubernetes control plane of Debian's sources, in 4 minutes or more; kept under ~/.cache/jupyter-dist. Without
# it, the tests of Kubernetes are skipped.
$(VENV)/.kubernetes: $(VENV)/.test tests/rigs/made_once.py $(addprefix tests/rigs/kubernetes/,binaries.py build.sh indexed.patch)
	if $(BIN)/python -m tests.rigs.kubernetes.binaries >/dev/null; then touch $@; \
	elif [ -n "$(filter-out 0,$(JUPYTER_DIST_REQUIRE_ALL))" ]; then exit 1; \
	else echo "skipped: the tests of Kubernetes" >&2; fi

# Azure's emulator of blobs; kept under ~/.cache/jupyter-dist. Without it, the tests of Azure ML are skipped.
$(VENV)/.azurite: $(VENV)/.test tests/rigs/made_once.py tests/rigs/azureml/azurite.py
	if $(BIN)/python -c 'from tests.rigs.azureml.azurite import azurite; azurite()'; then touch $@; \
	elif [ -n "$(filter-out 0,$(JUPYTER_DIST_REQUIRE_ALL))" ]; then exit 1; \
	else echo "skipped: the tests of Azure ML" >&2; fi

# Debian's Python 3.9 and 3.14; kept under ~/.cache/jupyter-dist. Without them, and without others, no test has
# a rank with these.
$(VENV)/.pythons: $(VENV)/.python tests/rigs/made_once.py tests/rigs/debian_python.py
	if $(BIN)/python -m tests.rigs.debian_python >/dev/null; then touch $@; \
	elif [ -n "$(filter-out 0,$(JUPYTER_DIST_REQUIRE_ALL))" ]; then exit 1; \
	else echo "skipped: the tests with Python 3.9 and 3.14" >&2; fi

$(VENV)/.bench: $(VENV)/.test $(HOROVOD)
	$(PIP) $(TORCH) $(TENSORFLOW) -e '.[bench]'
	touch $@

$(VENV)/.npm: package.json package-lock.json .npmrc | $(VENV)/.python
	@node -e 'process.exitCode = +(parseInt(process.versions.node) < 20)' 2>/dev/null || \
		{ echo "The front-end is built with Node 20 or newer and npm: https://nodejs.org" >&2; exit 1; }
	$(BIN)/python -c 'import jupyter_builder' 2>/dev/null || $(PIP) $(BUILDER)
	$(NPM) ci --prefer-offline
	touch $@

# An editable install carries no front-end: it is linked, so that JupyterLab sees each build at once.
$(VENV)/.js: $(VENV)/.npm tools/link_frontend.py $(FRONTEND)
	$(NPM) run -s build:prod
	$(BIN)/python tools/link_frontend.py
	touch $@
