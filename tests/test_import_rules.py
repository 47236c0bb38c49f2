"""The import rules see every folder: an import that points the wrong way breaks them."""

import pytest
from import_rules import lint

UPPER = "Upper layers use lower ones, never the other way"
READERS = "Reports, and the claims of suites, read results and measure nothing"
CHILD = "What runs in the fresh process knows nothing of the process that waits"
MODULES = "Modules and networks know the registry, the scans and their siblings alone"


def test_the_rules_are_kept() -> None:
    done = lint({})
    assert (done.returncode, done.stderr) == (0, "")
    assert "Contracts: 6 kept, 0 broken." in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "broken"),
    [
        ("report/tables/runs.py", "import ctxbench.engine", {UPPER, READERS}),
        ("report/tables/runs.py", "import ctxbench.worker.lines", {UPPER, READERS}),
        pytest.param(
            *("report/tables/runs.py", "import ctxbench.plugins.networks.table", {UPPER, "No circles"}),
            marks=pytest.mark.plugin("networks"),
        ),
        pytest.param(
            *("ctxbench/plugins/networks/figure.py", "import ctxbench.worker.lines", {READERS}),
            marks=pytest.mark.plugin("networks"),
        ),
        pytest.param(
            *("ctxbench/plugins/check/child/pair.py", "import ctxbench.engine", {CHILD}),
            marks=pytest.mark.plugin("check"),
        ),
        ("modules/se.py", "import ctxbench.plugins.check", {UPPER}),
        ("modules/se.py", "from ctxbench import report", {UPPER}),
        ("modules/se.py", "from ctxbench.plugins.memory.convention import CONVENTION", {UPPER}),
        ("modules/se.py", "from ctxbench.base.notes import Note", {MODULES}),
        ("networks/vit_small.py", "import ctxbench.cli", {UPPER}),
        ("ctxbench/results/csv_file.py", "import ctxbench.report.page", {UPPER, "No circles"}),
        (
            "modules/se.py",
            "import report.page",
            {"A folder beside ctxbench/ is imported by the name that it installs under"},
        ),
    ],
)
def test_an_import_that_points_the_wrong_way_is_told(path: str, line: str, broken: set[str]) -> None:
    done = lint({path: line})
    assert done.returncode == 1
    assert {text.removesuffix(" BROKEN") for text in done.stdout.splitlines() if text.endswith(" BROKEN")} == broken
