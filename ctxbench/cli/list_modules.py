"""`ctxbench list`: the modules that can be measured."""

from ctxbench.cli.printing import render


def list_modules() -> None:
    """List the modules that ctxbench and installed packages bring."""
    from rich.table import Table
    from rich.text import Text

    from ctxbench import registry

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("key", "title", "family", "year"):
        table.add_column(column, style="bold" if column == "key" else None)
    for entry in registry.entries():
        title = Text.assemble(("broken", "red"), f": {entry.broken}") if entry.broken else Text(entry.title)
        table.add_row(entry.key, title, entry.family, str(entry.year or ""))
    render(table)
