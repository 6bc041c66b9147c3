# `make demo` and `make test` need Python 3.11+, a C++ compiler and make; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src CMakeLists.txt pyproject.toml -type f -not -name '*.so' -not -path '*/__pycache__/*')

.PHONY: demo test lint format bench test-sanitize clean

# Installed in editable mode, so Python edits need no reinstall; kernels are rebuilt when a source is newer.
$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	touch $@

$(VENV)/dev.stamp: $(VENV)/pip.stamp pyproject.toml CMakeLists.txt $(wildcard src/kernels/*)
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@

demo: $(VENV)/dev.stamp
	$(BIN)/blockxmc demo

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
