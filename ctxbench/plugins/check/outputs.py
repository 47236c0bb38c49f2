"""Outputs of a result: the terminal, the files that are asked for, and GitHub Actions."""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from rich.console import Console

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.plugins.check.ci_files import annotations, as_json, junit, markdown
from ctxbench.plugins.check.result import GateResult
from ctxbench.plugins.check.self_test import SelfTest
from ctxbench.plugins.check.terminal import result_page


def emit(
    result: GateResult,
    console: Console,
    junit_path: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
    environ: Mapping[str, str],
    tested: SelfTest | None = None,
) -> None:
    """Print the table, write the files that are asked for, and tell GitHub Actions where `environ` says it runs there.

    JSON and Markdown have the figures of the self-test `tested` that the result comes from.
    UsageError, after all that could be written, if a file cannot be.
    """
    _show(result, console, in_actions=environ.get("GITHUB_ACTIONS") == "true")
    files: list[tuple[Path | None, Literal["w", "a"], Callable[[GateResult], str]]] = [
        (junit_path, "w", junit),
        (json_path, "w", partial(as_json, tested=tested)),
        (markdown_path, "w", partial(markdown, tested=tested)),
    ]
    if environ.get("GITHUB_STEP_SUMMARY"):
        files.append((Path(environ["GITHUB_STEP_SUMMARY"]), "a", markdown))
    failures = []
    for path, mode, render in files:
        if path is not None:
            try:
                disk.make_folder(path.parent)
                disk.write(path, render(result), mode, is_named=True)
            except UsageError as error:
                failures.append(str(error))
    if failures:
        raise UsageError(f"{'; '.join(failures)}; everything else was written")


def _show(result: GateResult, console: Console, *, in_actions: bool) -> None:
    """Print the table; GitHub obeys a line that begins with `::`, so its commands are off while names are printed."""
    token = secrets.token_hex(16)
    if in_actions:
        console.out(f"::stop-commands::{token}", highlight=False)
    console.print(result_page(result))
    for line in [f"::{token}::", *annotations(result)] if in_actions else []:
        console.out(line, highlight=False)
