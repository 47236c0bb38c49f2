"""`ctxbench.audit`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.texts import counted
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.engine.progress import Quiet
from ctxbench.model.conditions import CONDITIONS, Shape
from ctxbench.model.read_suite import published_path, read_published
from ctxbench.table.result import Result, Stopped

if TYPE_CHECKING:
    from ctxbench.model.case import Case
    from ctxbench.plugins.audit.finding import AuditFinding


def audit(
    table: str,
    blocks: Mapping[str, str] | None = None,
    *,
    of: str | None = None,
    shape: Shape | None = None,
    hparams: Mapping[str, Any] | None = None,
    tool: str | None = None,
    out: str | Path | None = None,
    progress: Quiet | None = None,
) -> "Result[list[AuditFinding]]":
    """Recount a published cost table, or figures of one line, with a verdict on each. Nothing is measured.

    Args:
        table: A published table by its name, or a TOML file; with `of` the figures themselves: `0.494M,0.326G` are
            parameters and MACs, others are named, such as `macs=0.326G,memory_train=1411`.
        blocks: Which class a block of the table is, such as `{"mine": "my_module.py:MyContext"}`.
        of: The block or network that these figures are of: a key, `path.py:Class`, `timm:NAME`.
        shape: Its input (B, C, H, W).
        hparams: Its hyper-parameters by name.
        tool: The counter that the source names, as `show --as` calls it: `thop`, `ptflops@0.7`.
        out: Also write the findings into this CSV file.
        progress: Gets the progress.

    Returns:
        A finding for each figure; they are also in `tables`.

    Raises:
        UsageError: For a table or a block that is unknown, and a place that cannot be written.
        Stopped: At Ctrl-C, with what is counted by then.

    Example:
        >>> found = ctxbench.audit("external_attention")
        >>> len(found.value) == len(found.frame)
        True
    """
    from ctxbench.plugins.audit import finding
    from ctxbench.plugins.audit.line import of_line
    from ctxbench.plugins.audit.recount import GIVEN, Recount, whole
    from ctxbench.plugins.audit.recounted import RecountedTable
    from ctxbench.plugins.audit.table import audit_table
    from ctxbench.plugins.audit.verdicts import judge, known, readings_of

    if out:
        disk.check_place(Path(out))
    if of:
        if blocks or shape is None:
            raise UsageError("--of goes with --shape, and without --block")
        path, content = GIVEN, of_line(table, of, CONDITIONS["shape"].checked(shape), hparams or {}, tool or "")
        blocks = {of: whole(of)} if ":" in of else {}
    else:
        for option, value in {"--shape": shape, "--set": hparams, "--tool": tool}.items():
            if value is not None:
                raise UsageError(f"{option} goes with --of, which names what the figures are of")
        path, content = published_path(table), read_published(table, RecountedTable)
    for name in blocks or {}:
        if name not in content.blocks:
            raise unknown("block of this table", name, content.blocks)
    with progress or Quiet() as shown, IsolatedLoader(static=True) as loader:
        recount = Recount(path, content, lambda case, names: counts_of(loader, case, names), blocks or {})
        try:
            findings = judge(recount, shown.stage)
            remarks = readings_of(recount) if of else []
        except KeyboardInterrupt:
            found = known(recount)
            tables = (audit_table(content, found),) * bool(found)
            sentence = f"stopped; {counted(len(found), 'figure')} counted, none judged"
            raise Stopped(sentence, Result(found, tables)) from None
    if out:
        finding.write(Path(out), findings)
    return Result(findings, (audit_table(content, findings, remarks),))


def counts_of(
    loader: IsolatedLoader, case: "Case", names: Iterable[str]
) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Counts of a case by a child; those of ctxbench's own modules and of libraries are kept for later runs."""
    from ctxbench.plugins.audit.counts import BlockCounts

    found: BlockCounts = loader.ask(case, "counts", BlockCounts, [*names], keep="always")
    return found.values, found.missing
