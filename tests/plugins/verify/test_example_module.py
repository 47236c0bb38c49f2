"""The module of the example package meets the contract."""

from pathlib import Path

from ctxbench import registry
from ctxbench.plugins.verify.checks import CHECKS, COMPILERS, run_checks
from ctxbench.plugins.verify.contract import SIZE
from ctxbench.plugins.verify.subject import Subject

EXAMPLE = Path(__file__).parents[3] / "examples" / "ctxbench-example-plugin"


def test_the_example_module_meets_the_contract() -> None:
    entry = registry.get(f"{EXAMPLE / 'ctxbench_example' / 'global_context.py'}:GlobalContext")
    checks = [check for check in CHECKS if check not in COMPILERS]
    results = list(run_checks(Subject(entry, entry.load(), 64, {}, SIZE), checks))
    assert [(result.name, result.fact) for result in results if result.outcome != "passed"] == []
