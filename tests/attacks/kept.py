"""Attacks that once did harm, by name, each with the tests that walk its kind: none may do it again."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from .tally import Tally

ROOT = Path(__file__).parents[2]
RUNS = "test_trust.py::test_no_file_has_code_run_that_it_names"
CASES = {
    "a file of data calls a function of Python": f"{RUNS}[function]",
    "a file of data calls a built-in": f"{RUNS}[builtin]",
    "a file of data calls a partial": f"{RUNS}[partial]",
    "a file of data calls what another file imports": f"{RUNS}[imported]",
    "a file of data calls a package without torch": f"{RUNS}[library]",
    "a folder without __init__ runs": f"{RUNS}[namespace_package]",
    "a planted pickle runs": f"{RUNS}[stored_object]",
    "an archive on the path runs": f"{RUNS}[archive]",
    "a link to a sender's file runs": f"{RUNS}[link]",
    "a setting opens what it names": "test_trust.py::test_a_file_gives_code_of_packages_numbers_and_words_alone",
    "claims beside a suite run": "test_trust.py::test_the_claims_beside_a_suite_of_elsewhere_are_not_run",
    "a report writes through a link": "test_links.py::test_no_file_of_a_report_is_written_through_a_link",
    "a report's folder is a link": "test_links.py::test_a_report_that_is_named_no_folder_follows_no_link",
    "a run writes through a link": "test_links.py::test_no_file_of_a_run_is_written_through_a_link",
    "a report replaces a person's page": "test_links.py::test_a_report_replaces_its_own_files_alone",
    "a setting of git runs a program": "test_git.py::test_no_setting_runs_a_program",
    "a run in TMPDIR is removed": "test_disk.py::test_what_a_killed_process_has_left_is_removed_by_the_next",
    "a kept count hangs on a file or variable": "test_opened.py",
    "a long text hangs a command": "test_long_texts.py",
    "a pattern is quadratic": "test_patterns.py",
    "a sealed line of the cache is believed": "test_counted.py::test_a_sealed_line_that_is_no_message_is_counted_anew",
    "a plugin ends every command": "test_capabilities.py::test_a_plugin_that_cannot_be_is_named",
    "grouped queries do not fit": "plugins/memory/test_memory_attention.py::"
    "test_grouped_queries_on_the_cpu_equal_the_profiler",
    "a drawn structure is a regression": "test_drawn_structure.py",
    "the precision of products breaks a module": "test_precision_settings.py",
    "weights of the first pass are lost": "test_built.py",
    "outputs kept by content are work": "test_computed.py::test_outputs_kept_by_content_are_told_from_work",
    "a wheel has files that are gone": "test_packaging.py::test_a_wheel_holds_what_the_tree_holds",
    "a suite of wrong types is a traceback": "test_suite.py::test_a_malformed_suite_gets_one_sentence",
    "an import of an example fails": "test_docs.py::test_each_import_of_an_example_works",
}


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Run the tests of each case, or of three that are drawn; what fails is wrong, with its name."""
    names = sorted(name for name, test in CASES.items() if (ROOT / "tests" / test.partition("::")[0]).exists())
    names = Random(seed).sample(names, 3) if short else names
    tally = Tally(tried=len(names))
    # As `make test` has it, whatever the pytest is set to from which this is called.
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CTXBENCH_TEST_"))}
    for name in names:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"tests/{CASES[name]}"]
        done = subprocess.run(command, cwd=ROOT, env=usual, capture_output=True, text=True, check=False)
        tally.wrong += [f"{name}: {done.stdout[-500:]}"] if done.returncode else []
    return tally
