# Everything runs in .venv, which the first target makes with the versions of constraints.txt. What tests, lints and builds
# does so in .tracked, a copy of the files that git tracks (tests/tracked.py): nothing else in the clone changes its outcome.
PYTHON ?= python3
BIN := .venv/bin
# Without compiled files, each of the tests' many processes would compile ctxbench again.
unexport PYTHONDONTWRITEBYTECODE
# What a person has set for other Pythons does not reach this one.
unexport PYTHONPATH PYTHONHOME
export PIP_USER := 0
CPU_BUILDS := https://download.pytorch.org/whl/cpu
PIP := $(BIN)/pip install --quiet --constraint constraints.txt
# The wheels for Linux on x86-64, but torch's, have their hashes in a file. pip takes no hashes beside a folder, so they come first.
IS_HASHED := $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m))
HASHED = $(if $(IS_HASHED),$(BIN)/pip install --quiet --require-hashes --no-deps --requirement $(1) && $(PIP) --no-build-isolation,$(PIP))
IN_COPY := cd .tracked && "$(CURDIR)/.venv/tracked/bin/python"
QUICK := not processes and not timing and not slow and not long
# A test waits for processes at times: one worker more than there are cores, at most eight, each with about a GB.
WORKERS = $(shell cores=$$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN); echo $$((cores < 7 ? cores + 1 : 8)))
BY_FILE := --dist loadscope --no-loadscope-reorder
PARALLEL = -n $(WORKERS) $(BY_FILE)
DRAWN := export CTXBENCH_TEST_CASES=$${CTXBENCH_TEST_CASES:-drawn}
# What `make test` runs; `make loaded` asks for more.
TESTED := -m "not timing and not long" --ignore tests/science
# Tests with a mark, without reading the files that have none.
marked = $(IN_COPY) -m pytest -m $(1) $$(grep -rl --include="test_*.py" "pytest.mark.$(1)" tests)

.PHONY: table3 tracked test science loaded long quick check extras other-python research counters lint site format report matrix gpu dist clean

table3: .venv/.installed
	$(BIN)/ctxbench run --suite table3

tracked: .venv/.dev
	@$(BIN)/python tests/tracked.py

# First the tests that any load may delay, side by side; then those that judge real times, alone. Of tests with four cases
# and more those of changed files and a tenth of the others, drawn by the day; CTXBENCH_TEST_CASES=all has all. On a
# machine of the tests no real time is judged.
test: tracked
	$(DRAWN); $(IN_COPY) -m pytest $(PARALLEL) $(TESTED)
	$(if $(CTXBENCH_TEST_MACHINE),,$(call marked,timing))

# The tests of ctxbench-science, which has a folder and an installation of its own.
science: tracked
	$(DRAWN); $(IN_COPY) -m pytest $(PARALLEL) -m "not timing and not long" tests/science

# `make test` with the tests of `make science` and `make long`, beside a busy loop on each core, then some tests at half speed beside those for other processors: how CI runs them.
loaded: tracked
	$(BIN)/python tests/under_load.py
	$(call marked,timing)

# Attacks on runs, generated commands and run folders, processes that are killed, clusters of several nodes, wheels, the page in a browser and the tables of the docs.
# Plugins deleted in copies, and all committed counts, too. With CTXBENCH_TEST_SAMPLE=random a new tenth of what is generated or committed, and three plugins.
long: tracked
	$(IN_COPY) -m pytest $(PARALLEL) -m long

# Of the same tests those that start no process and take no seconds, without reading the files that have none.
quick: tracked
	$(DRAWN); $(IN_COPY) -m pytest -n 2 $(BY_FILE) -m "$(QUICK)" \
	    $$(grep -rLE --include="test_*.py" "^pytestmark = \[?pytest.mark.(slow|processes|long)" tests)

check: lint test science long site

lint: tracked
	$(IN_COPY) -m ruff format --check .
	$(IN_COPY) -m ruff check .
	$(IN_COPY) -m mypy
	$(IN_COPY) tests/import_rules.py
	$(IN_COPY) tests/docstring_rules.py
	$(IN_COPY) tests/owner_rules.py

# The tests that need the packages of an extra, which are installed into .venv: runtimes, converters, timm,
# ultralytics, public packages of blocks. LiteRT, which wants an older typing_extensions than selenium, is left out.
extras: tracked
	$(PIP) --editable ".[onnx,openvino,executorch,coreml,networks,detectors,public,cudnn]"
	$(DRAWN); $(call marked,extra) -n 2

# The tests of what the authors alone run, with what it needs; see research/README.md.
research: .venv/.research tracked
	$(IN_COPY) -m pytest research

# What other counters print, by version: each package is installed into a folder of its own and asked; an hour.
counters: .venv/.research
	$(PIP) --editable ".[networks]"
	$(BIN)/python research/counters.py all

# Everything that the README and the docs show, from the committed runs; git keeps the figures that pages embed.
report: tracked
	cd .tracked && for run in results/*-cpu; do name=$$(basename $$run -cpu); \
	    test ! -f $$run/run.json || "$(CURDIR)/.venv/tracked/bin/python" -m ctxbench report $$run --out docs/report/$$name --formats png || exit 1; done
	$(BIN)/python tests/tracked.py --back docs/update.py

# The documentation as a site; a dead link fails. Reports are in it where `make report` has written them.
site: tracked
	$(IN_COPY) -m sphinx -q -W --keep-going -b html docs "$(CURDIR)/docs/site"

# Quick tests under another Python, with the build of torch that PyPI has, which is that for CUDA, or with the oldest
# versions of all that pyproject.toml allows: another pair each day.
PAIRS := 3.12:2.13.0 3.13:2.13.0 3.12:2.14.1 3.11:floors
other-python: tracked
	$(DRAWN); cd .tracked && TESTS="$(QUICK)" bash benchmarks/matrix.sh $(word $(shell echo $$(($$(date +%j | sed 's/^0*//') % 4 + 1))),$(PAIRS))

# The tests under other versions of Python and torch; takes several GB and a while for each.
matrix: tracked
	cd .tracked && bash benchmarks/matrix.sh

# What ctxbench shows on this machine's GPU, in calls of ten minutes; see docs/gpu.md.
gpu: .venv/.nvidia
	$(BIN)/python benchmarks/gpu.py

# The source archives of ctxbench and ctxbench-science, and the wheels that are built from them, in dist/. In an
# environment of their own the wheels run four commands.
dist: tracked
	rm -rf dist .venv/dist
	$(IN_COPY) -m build --no-isolation --outdir "$(CURDIR)/dist"
	$(IN_COPY) -m build --no-isolation --outdir "$(CURDIR)/dist" science
	$(PYTHON) -m venv .venv/dist
	.venv/dist/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	cd .venv/dist && bin/ctxbench list && bin/ctxbench show sa --shape 1,64,32,32 && bin/ctxbench audit hamburger && bin/ctxbench run --suite gradient --dry-run

format: .venv/.dev
	git ls-files -z --cached --others --exclude-standard "*.py" | xargs -0 $(BIN)/ruff format
	git ls-files -z --cached --others --exclude-standard "*.py" | xargs -0 $(BIN)/ruff check --fix

clean:
	rm -rf .venv .tracked build dist *.egg-info

# Without an NVIDIA driver the build of torch for CPUs does, which is 4.5 GB smaller; if its index does not answer, the usual build follows.
.venv/.installed: pyproject.toml constraints.txt hashes.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "ctxbench needs Python 3.11, 3.12 or 3.13, and " \
	    "$(PYTHON) is %d.%d. Name another one: make PYTHON=python3.13" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	@command -v nvidia-smi >/dev/null || $(PIP) --no-deps --retries 0 --timeout 15 --index-url $(CPU_BUILDS) torch \
	    || echo "The CPU build of torch could not be had; the usual one is installed, which is 4.5 GB larger."
	$(call HASHED,hashes.txt) --editable .
	touch $@

.venv/.dev: .venv/.installed science/pyproject.toml hashes-dev.txt
	$(call HASHED,hashes-dev.txt) --editable ".[dev]" --editable ./science
	touch $@

.venv/.research: .venv/.dev research/requirements.txt
	$(PIP) --requirement research/requirements.txt
	touch $@

.venv/.nvidia: .venv/.installed
	$(PIP) --editable ".[nvidia]"
	touch $@
