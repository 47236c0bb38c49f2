"""`ctxbench list`: the modules that can be measured."""

from ctxbench.terminal import safe, say


def list_modules() -> None:
    """List the modules that ctxbench and installed packages bring."""
    from ctxbench import registry

    rows = [("key", "title", "family", "year", "")]
    for entry in registry.entries():
        broken = f"broken: {entry.broken}" if entry.broken else ""
        rows.append((safe(entry.key), safe(entry.title), safe(entry.family), str(entry.year or ""), broken))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
