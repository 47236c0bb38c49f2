"""`ctxbench audit`: the figures of a published cost table, recounted."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import say
from ctxbench.cli.printing import render
from ctxbench.engine.isolated import IsolatedLoader

if TYPE_CHECKING:
    from ctxbench.model.case import Case


def complete_table() -> list[str]:
    from ctxbench.model.read_suite import available

    return available("published")


def audit(
    table: Annotated[
        str, typer.Argument(help="A published table by its name, or a TOML file.", autocompletion=complete_table)
    ],
    block: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=REFERENCE", help="Which class a block of the table is: mine=my_module.py:MyContext."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the findings into this CSV file.")] = None,
) -> None:
    """Recount a published cost table; print a verdict on each figure. Nothing is measured."""
    from ctxbench.base import disk
    from ctxbench.model.read_suite import published_path, read_published
    from ctxbench.plugins.audit import finding
    from ctxbench.plugins.audit.recount import Recount
    from ctxbench.plugins.audit.table import audit_table
    from ctxbench.plugins.audit.verdicts import judge

    if out:
        disk.check_place(out)
    path, content = published_path(table), read_published(table)
    blocks = _blocks(block or [], content.blocks)
    with IsolatedLoader(static=True) as loader:
        recount = Recount(path, content, lambda case, names: _counted(loader, case, names), blocks)
        findings = judge(recount, lambda row: say(f"counting {row}", stderr=True))
    render(audit_table(content, findings))
    if out:
        finding.write(out, findings)


def _blocks(texts: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """References by the names of blocks. UsageError for a text of another form, or a block that no row has."""
    from ctxbench.base.errors import unknown

    found = {}
    for text in texts:
        name, equals, reference = text.partition("=")
        if not (equals and name and reference):
            raise UsageError(f"--block {text!r} is not NAME=REFERENCE, such as mine=my_module.py:MyContext")
        if name not in known:
            raise unknown("block of this table", name, known)
        found[name] = reference
    return found


def _counted(loader: IsolatedLoader, case: "Case", names: Iterable[str]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Counts of a case by a child."""
    from ctxbench.plugins.audit.counts import Counts

    found: Counts = loader.ask(case, "counts", Counts, [*names])
    return found.values, found.missing
