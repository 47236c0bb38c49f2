#!/usr/bin/env bash
# Runs the tests of `make test` under other versions of Python and torch, one environment at a time.
#
#   bash benchmarks/matrix.sh                         # the oldest, the pinned and the newest torch, and those between
#   bash benchmarks/matrix.sh 3.12:2.11.0             # pairs of your own
#   bash benchmarks/matrix.sh 3.11:floors             # of all that ctxbench needs the oldest that pyproject.toml allows
#
#   TESTS="not timing" bash benchmarks/matrix.sh 3.13:2.13.0    # tests of your own choice
#   VENV_IN=FOLDER ONLY_MAKE=1 bash benchmarks/matrix.sh 3.13:2.13.0    # makes the environment, in which a call without
#                                                                       # ONLY_MAKE then tests
#
# Each environment takes several GB while it is tested (torch brings its CUDA build) and is removed after it. The exit
# code is the number of pairs that failed.
set -uo pipefail
cd "$(dirname "$0")/.."
tests=${TESTS:-not timing and not long}
# With pyenv, each Python that it has is found by its name.
if command -v pyenv >/dev/null; then PYENV_VERSION=$(pyenv versions --bare | paste -sd :); export PYENV_VERSION; fi
pairs=("$@")
[ ${#pairs[@]} -gt 0 ] || pairs=(3.12:2.11.0 3.11:2.13.0 3.13:2.15.0 3.11:2.12.1 3.12:2.14.1)
failed=0
for pair in "${pairs[@]}"; do
    python=${pair%%:*} torch=${pair##*:}
    folder=${VENV_IN:-$(mktemp -d)}
    if [ "$torch" = floors ]; then
        wanted=torch
        sed -n '/^dependencies/,/^]/ s/.*"\([A-Za-z0-9_-]*\)>=\([0-9.]*\).*/\1==\2/p' pyproject.toml > "$folder/constraints.txt"
    else
        wanted=torch==$torch
        # torch pins some of its own requirements
        grep -v -E '^(torch|numpy|setuptools|sympy|mpmath|networkx|fsspec|filelock|typing_extensions)==' constraints.txt > "$folder/constraints.txt"
    fi
    echo "== Python $python, torch $torch"
    made=$folder/$python-$torch
    [ -f "$made" ] || { "python$python" -m venv --clear "$folder/venv" &&
        "$folder/venv/bin/pip" install --quiet -c "$folder/constraints.txt" "$wanted" -e ".[dev]" -e ./science && touch "$made"; }
    [ -z "${ONLY_MAKE:-}" ] || continue
    if [ -f "$made" ] && "$folder/venv/bin/python" -m pytest -n 2 --dist loadscope --no-loadscope-reorder -m "$tests"; then
        echo "== Python $python, torch $torch: passed"
    else
        echo "== Python $python, torch $torch: FAILED"
        failed=$((failed + 1))
    fi
    rm -rf "$folder"
done
exit "$failed"
