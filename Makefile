# make demo   installs dagrl into .venv and trains the team of workflows/marft.yaml
# make test   installs dagrl with its tools into .venv, then lint, types and all tests that need no GPU
# make test-resilience  kills, power losses, damaged bytes, broken files by the dozen, and the longest tests
# make check  lint, types and layering alone

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO_ARGS ?=

# Nothing asks, nothing looks for a newer pip. Byte code is made for what is imported (and must then be kept: torch and
# transformers take ten seconds more to import without), not for all that is installed.
export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --no-compile

.PHONY: demo test test-resilience check lint types layering pytest reference docs clean

demo: $(VENV)/.installed
	$(BIN)/dagrl run --workflow workflows/marft.yaml $(DEMO_ARGS)

# The layering check is one of the tests. With `make -k` all three run, the tests last.
test: lint types pytest

check: lint types layering

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

layering: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/test_architecture.py

# A process for each core, each with one thread, as many threads as cores would only wait for each other; the tests of a
# file stay together, because they share what is expensive to make.
pytest: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -m "not gpu and not resilience"

test-resilience: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -m resilience tests

# Writes anew what is made from code: docs/workflow_reference.md, the JSON Schema, README's map, outputs in docs/errors.
reference: $(VENV)/.installed-dev
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/error_pages.py

# Builds docs/ as HTML into build/docs, with no network; a broken link fails.
docs: $(VENV)/.installed-dev
	$(BIN)/python docs/build.py

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dagrl needs Python 3.11 or later; make PYTHON=python3.x ...")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: setup.py | $(BIN)/python
	@echo "installing dagrl into $(VENV) (a few minutes the first time)"
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: setup.py | $(BIN)/python
	@echo "installing dagrl and its tools into $(VENV) (a few minutes the first time)"
	$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
