# Two commands for newcomers: `make demo` and `make test`. Both set everything up by themselves.

# The first interpreter that runs and can create environments; `make PYTHON=...` chooses another one.
ifndef PYTHON
PYTHON := $(shell for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$name -c "import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))" 2> /dev/null && \
	echo $$name && break; done)
endif
BIN := .venv/bin
SERVE ?= 1
# One more than there are cores: tests of pages and of the queue wait for other processes.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

# Tests of compilers run beside compilers of their own (`make compilers`); `pictures` takes screenshots.
FAST := not slow and not compiler and not pictures
SLOW := slow and not compiler and not pictures
# tests/support/portions.py says which tests go to a worker together.
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 25
# What checks and tests keep for every clone: types here; compiled programs and stamps by tests/support.
KEPT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trainproof-tests
# How long every test took; benchmarks/results/test_seconds.json is made of these two.
SECONDS_OF := --seconds=.pytest_cache/seconds_

# uv installs sources. Python keeps what it compiled of them beside them; where a shell or a container forbids it, every
# command would compile them anew, which for training takes longer than all its imports.
unexport PYTHONDONTWRITEBYTECODE

# Compilers for devices that are not here exist for one system. They lie beside the environment: inside it, the CUDA
# plugin would say a line at every start of JAX.
COMPILERS := .compilers
HAS_COMPILERS := $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m))

# What most users have, who install today: the lock is for Python 3.11, whose newest packages are older.
NEWEST := .newest
PYTHON312 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python3.12) python3.12)

.PHONY: demo test test-slow test-failed test-all compilers nightly newest pictures check setup lock clean

demo: setup ## train a small model and a LoRA adapter; check, package and verify them; open the dashboard (SERVE=0 stops before that)
	$(BIN)/trainproof demo $(if $(filter 0,$(SERVE)),--no-serve)

test: setup ## run the tests of every feature, in minutes
	$(PYTEST) $(SECONDS_OF)fast.json -m "$(FAST)"

test-slow: setup ## run the other tests: every key and layout, kills, full disks, installs, browsers, compilers
	$(PYTEST) $(SECONDS_OF)slow.json -m "$(SLOW)"
	$(if $(HAS_COMPILERS),$(BIN)/python tests/support/stamps.py compilers || $(MAKE) --no-print-directory compilers)

test-failed: ## run the tests that failed last, one after the other
	$(BIN)/pytest --last-failed --last-failed-no-failures none -m "not compiler and not pictures"
	$(if $(HAS_COMPILERS),$(BIN)/python tests/support/stamps.py compilers || $(MAKE) --no-print-directory compilers)

test-all: ## run both
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory test-slow

compilers: setup $(COMPILERS)/.ready ## run the tests that need compilers for TPUs and CUDA; none of them is skipped
	TRAINPROOF_COMPILERS=1 PYTHONPATH="$(CURDIR)/$(COMPILERS)" $(BIN)/pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder -m compiler
	$(BIN)/python tests/support/stamps.py compilers --passed

nightly: setup ## run every test without exception, a real model, three hundred kills, and Python 3.12
	TRAINPROOF_NIGHTLY=1 $(PYTEST) -m "not compiler and not pictures"
	$(if $(HAS_COMPILERS),$(MAKE) --no-print-directory compilers)
	$(MAKE) --no-print-directory newest

# Without checking array shapes as tests run: from Python 3.12 on a protocol does not see what transformers' tokenizers
# answer only when asked, and every call with one would fail.
newest: $(NEWEST)/.ready ## run the trainer's tests and the demo on Python 3.12 with the newest of every package
	$(NEWEST)/bin/python -m pytest -o addopts="--import-mode=importlib --strict-markers -ra" --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder -m "not packaging and not compiler" tests/trainer
	$(NEWEST)/bin/trainproof demo --root $(NEWEST)/runs --again --no-serve

pictures: setup ## take the pictures of every page into screenshots/
	$(BIN)/pytest -m pictures tests/dashboard/browser

check: setup ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	MYPY_CACHE_DIR="$(KEPT)/mypy" $(BIN)/mypy
	$(BIN)/lint-imports

setup: .venv/.ready

# The lock is installed with its hashes checked; the project itself is installed in place, without dependencies.
.venv/.ready: requirements.lock pyproject.toml
	$(if $(PYTHON),,$(error No usable Python was found. trainproof needs Python 3.11, 3.12, 3.13 or 3.14 with the modules venv and ensurepip: install one (Debian, Ubuntu: `apt install python3 python3-venv`; any system: `uv python install 3.13`), or name it: `make PYTHON=/path/to/python`))
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python .venv --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python .venv --no-deps --editable .
	$(BIN)/python -m compileall -q trainproof trainer evidence schemas launch dashboard
	$(BIN)/python -c "import trainer.run, dashboard.shared.reading, pandas, streamlit.web.bootstrap, uvicorn"
	$(BIN)/trainproof --help > /dev/null
	touch $@

$(COMPILERS)/.ready: requirements-compilers.lock | setup
	rm -rf $(COMPILERS)
	$(BIN)/uv pip install --quiet --python .venv --target $(COMPILERS) --no-deps --require-hashes -r $<
	touch $@

$(NEWEST)/.ready: pyproject.toml | setup
	rm -rf $(NEWEST)
	$(PYTHON312) -m venv $(NEWEST)
	$(BIN)/uv pip install --quiet --upgrade --python $(NEWEST) --editable ".[all,dev]"
	touch $@

lock: ## pin and hash the newest versions that pyproject.toml allows
	$(BIN)/uv pip compile pyproject.toml --universal --extra all --extra dev --python-version 3.11 --upgrade \
		--generate-hashes --no-emit-index-url --no-annotate --no-header --quiet --output-file requirements.lock
	printf 'jax-cuda12-plugin\nlibtpu\n' | $(BIN)/uv pip compile - --constraints requirements.lock --upgrade --python-version 3.11 \
		--python-platform x86_64-manylinux_2_31 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet \
		--output-file requirements-compilers.lock

clean: ## remove what setup made
	rm -rf .venv $(COMPILERS) $(NEWEST) *.egg-info
