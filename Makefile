# Everything happens in a virtual environment of its own; nothing else is touched.
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3

.PHONY: demo test test-integration test-slow test-browser test-all trust mutants core-coverage night bench docs lint types coverage clean

demo: $(VENV)/.installed
	$(BIN)/primedpca demo
	@echo
	@echo "To make a report about a table of your own:"
	@echo "  . $(BIN)/activate"
	@echo "  primedpca fit data.csv -k 8 --scale std --missing mean --report page.html"
	@echo "Columns of text: name them with --id, --label or --exclude."

test: $(VENV)/.installed-test lint types
	$(BIN)/pytest -n 2

# Dask, ranks, killed processes, pages, examples, and the default tests on more sources.
test-integration: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 -m 'integration and not slow'

# Minutes, and the real data that PRIMEDPCA_DATA points at.
test-slow: $(VENV)/.installed-test
	$(BIN)/pytest -m slow

# Needs Chromium, which your system installs; no browser is downloaded.
test-browser: $(VENV)/.installed-browser
	$(BIN)/pytest -m browser tests/browser

test-all: test test-integration test-slow docs test-browser

# Every proof of the claims, an hour or less; writes docs/trust.md. `make trust ARGS=--quick` in minutes.
trust: $(VENV)/.installed-test
	$(BIN)/python tests/trust/run.py $(ARGS)

# 1,000 mutants of every kind of file, then all mutants of the numerical core (hours; resumed).
mutants: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 -m slow tests/sources/test_mutants.py $(ARGS)
	$(BIN)/python tests/trust/core_coverage.py --map .trust_lines.json
	$(BIN)/python tests/trust/mutation.py --all --results mutation.jsonl --map .trust_lines.json

# Branch coverage of the numerical core: at least 95 per cent.
core-coverage: $(VENV)/.installed-test
	$(BIN)/python tests/trust/core_coverage.py $(ARGS)

# Eight hours of fuzzing with new seeds; prints what is new. `make night ARGS='--hours 1'`.
night: $(VENV)/.installed-test
	$(BIN)/python tests/trust/night.py $(ARGS)

# Half an hour or more on a quiet machine, and the same data; `make bench ARGS=--quick` in a minute.
bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/race.py $(ARGS)

# The site, into docs/_build/html; any warning is an error. The examples run: about two minutes.
docs: $(VENV)/.installed-docs
	rm -rf docs/generated
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.installed-test
	$(BIN)/mypy

# The statements that the default tests run; the page is htmlcov/index.html.
coverage: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 --cov --cov-report=term --cov-report=html

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# With what tables and pages need, so that the first fit of one's own file has it.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[disk,plots]'
	touch $@

$(VENV)/.installed-test: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-browser: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet -e '.[browser]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .coverage* .trust_lines.json htmlcov dist docs/_build docs/auto_examples docs/generated
