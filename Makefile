# Everything runs in .venv, which the first target makes with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: table3 test check format report clean

table3: .venv/.installed
	$(BIN)/ctxbench run --suite table3

test: .venv/.dev
	$(BIN)/python -m pytest

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

# Everything that the README and the docs show, from the committed runs.
report: .venv/.installed
	$(BIN)/ctxbench report results/table3-cpu --out docs/report
	$(BIN)/ctxbench report results/scaling-cpu --out docs/report/scaling --figures scaling,memory
	$(BIN)/python docs/update.py

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist *.egg-info

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	touch $@

.venv/.dev: .venv/.installed
	$(PIP) --editable ".[dev]"
	touch $@
