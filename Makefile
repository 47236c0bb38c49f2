# Everything runs in .venv, which the first target makes with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
# Without compiled files, each of the tests' many processes would compile ctxbench again.
unexport PYTHONDONTWRITEBYTECODE
# What a person has set for other Pythons does not reach this one.
unexport PYTHONPATH PYTHONHOME
export PIP_USER := 0
CPU_BUILDS := https://download.pytorch.org/whl/cpu
PIP := $(BIN)/pip install --quiet --constraint constraints.txt

.PHONY: table3 test loaded long quick check extras lint site format report matrix gpu clean

table3: .venv/.installed
	$(BIN)/ctxbench run --suite table3

# First the tests that any load may delay, side by side; then those that judge real times, alone.
test: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m "not timing and not long"
	$(BIN)/python -m pytest -m timing

# `make test` beside a busy loop on each core, then some of it at half a core's speed: how CI runs it.
loaded: .venv/.dev
	$(BIN)/python tests/under_load.py
	$(BIN)/python tests/under_caps.py
	$(BIN)/python -m pytest -m timing

# Attacks on runs, generated commands and run folders, processes that are killed, clusters of several nodes, wheels, the page in a browser and the tables of the docs.
# With CTXBENCH_TEST_SAMPLE=random a new tenth of what is generated.
long: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m long

# The tests that start no process and take no seconds.
quick: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m "not processes and not timing and not slow and not long"

check: lint test long site

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tests/import_rules.py
	$(BIN)/python tests/docstring_rules.py

# What needs the runtimes of the extras onnx and openvino, timm and scikit-learn; these are installed into .venv.
extras: .venv/.dev
	$(PIP) --editable ".[onnx,openvino,networks,recall]"
	$(BIN)/python -m pytest -n 2 tests/plugins/runtimes/test_executions.py tests/plugins/networks/test_networks.py tests/plugins/recall/test_recall.py \
	    tests/plugins/networks/test_mmsegmentation.py tests/plugins/audit/test_audit.py tests/test_scan.py \
	    tests/plugins/profile/test_profile.py::test_a_network_goes_by_its_submodules_and_the_lines_of_the_module

# Everything that the README and the docs show, from the committed runs; git keeps the figures that pages embed.
report: .venv/.installed
	for run in results/*-cpu; do name=$$(basename $$run -cpu); \
	    test ! -f $$run/run.json || $(BIN)/ctxbench report $$run --out docs/report/$$name --formats png || exit 1; done
	$(BIN)/ctxbench report results/prediction/table3 --out docs/report/prediction --figures published --formats png
	$(BIN)/python docs/update.py

# The documentation as a site; a dead link fails. Reports are in it where `make report` has written them.
site: .venv/.dev
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/site

# The tests under other versions of Python and torch; takes several GB and a while for each.
matrix:
	bash benchmarks/matrix.sh

# What ctxbench shows on this machine's GPU, in under ten minutes; see docs/gpu.md.
gpu: .venv/.nvidia
	$(BIN)/python benchmarks/gpu.py

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist *.egg-info

# Without an NVIDIA driver the build of torch for CPUs does, which is 4.5 GB smaller; if its index does not answer, the usual build follows.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	@command -v nvidia-smi >/dev/null || $(PIP) --no-deps --retries 0 --timeout 15 --index-url $(CPU_BUILDS) torch \
	    || echo "The CPU build of torch could not be had; the usual one is installed, which is 4.5 GB larger."
	$(PIP) --editable .
	touch $@

.venv/.dev: .venv/.installed
	$(PIP) --editable ".[dev]"
	touch $@

.venv/.nvidia: .venv/.installed
	$(PIP) --editable ".[nvidia]"
	touch $@
