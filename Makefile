# The environment is .venv. Each step of its setup leaves a stamp in it, so a second call is fast.
PYTHON ?= python3
# Installed before all else and exactly: a plain `torch` may bring gigabytes of CUDA packages along.
TORCH ?= torch==2.13.0
TENSORFLOW ?= tensorflow-cpu==2.21.0
TF_KERAS ?= tf_keras==2.21.0
# Tests at a time; each starts a few processes of its own.
JOBS ?= 2

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# npm's store holds packages by their hash: a fresh clone downloads nothing that was seen before.
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --cache "$${XDG_CACHE_HOME:-$$HOME/.cache}/jupyter-dist/npm"
FRONTEND := $(shell find labextension -type f -not -path 'labextension/lib/*' -not -path 'labextension/tests/*')
APT := apt-get install python3 python3-venv

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check lab bench clean

help: ## List what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.demo ## Train on 2 workers, without a browser, and print what each got
	$(BIN)/python tools/run_notebook.py notebooks/quickstart.ipynb

lab: .venv/.lab .venv/.js ## Open the notebooks in JupyterLab; ARGS="--allow-root" and the like are for it
	$(BIN)/jupyter lab $(ARGS) notebooks/quickstart.ipynb

check: .venv/.test .venv/.js ## Lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(NPM) run -s check

test: check .venv/.horovod ## Check, then every test; JUPYTER_DIST_REQUIRE_ALL=1 makes a skip a failure
	$(NPM) test
	$(PYTEST) -n $(JOBS) --dist loadgroup -m "not serial" && parallel=0 || parallel=$$?; \
	$(PYTEST) -m serial && exit $$parallel

bench: .venv/.bench ## Measure against the peers, in one run
	$(BIN)/python -m benchmarks

clean: ## Remove the environment and what was built
	rm -rf .venv build dist node_modules .mypy_cache .ruff_cache .pytest_cache
	rm -rf labextension/lib jupyter_dist/labextension jupyter_dist/static

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Python 3.10 or newer is needed as '$(PYTHON)': $(APT), or make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "'$(PYTHON)' cannot make a virtual environment: $(APT)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	touch $@

.venv/.torch: .venv/.python
	$(PIP) $(TORCH)
	touch $@

.venv/.demo: .venv/.torch pyproject.toml
	$(PIP) -e '.[demo]'
	touch $@

.venv/.lab: .venv/.demo
	$(PIP) jupyterlab ipywidgets
	touch $@

# tf_keras asks for the full tensorflow, which the CPU build is not by name: hence --no-deps.
.venv/.test: .venv/.demo
	$(PIP) $(TENSORFLOW)
	$(PIP) --no-deps $(TF_KERAS)
	$(PIP) -e '.[test]'
	touch $@

# Minutes the first time; the wheel is kept under ~/.cache/jupyter-dist for the same versions.
.venv/.horovod: .venv/.test jupyter_dist/commands/horovod_build.py jupyter_dist/commands/horovod_recipe.py
	$(BIN)/jupyter dist install-horovod
	touch $@

.venv/.bench: .venv/.test .venv/.horovod
	$(PIP) -e '.[bench]'
	touch $@

.venv/.npm: .venv/.python package.json package-lock.json .npmrc
	@node -e 'process.exitCode = +(parseInt(process.versions.node) < 20)' 2>/dev/null || \
		{ echo "The front-end is built with Node 20 or newer and npm: https://nodejs.org" >&2; exit 1; }
	$(PIP) 'jupyter-builder>=1.2,<2'
	$(NPM) ci --prefer-offline
	touch $@

# An editable install carries no front-end: it is linked, so that JupyterLab sees each build at once.
.venv/.js: .venv/.npm tools/link_frontend.py $(FRONTEND)
	$(NPM) run -s build:prod
	$(BIN)/python tools/link_frontend.py
	touch $@
