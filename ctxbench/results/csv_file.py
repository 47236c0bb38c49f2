"""The CSV files of a run folder: appended to whole or not at all, read back with types, each fault told by its line."""

import csv
import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.model.metric import Column

if TYPE_CHECKING:
    from _csv import Reader


def csv_line(cells: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


# A text is read back whatever its length.
csv.field_size_limit(2**31 - 1)


def stored(path: Path) -> Path:
    """File that holds a table: itself, or one with `.gz` behind its name, if only that is there."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if os.path.lexists(packed) and not os.path.lexists(path) else path


def mend(path: Path, header: Iterable[str]) -> int:
    """Remove what is not whole: a torn end, lines with more or fewer cells than the header; how many there were.

    That is what a writer leaves that is killed, or whose disk is full. A table without a whole line gets its header.
    """
    written = disk.read_bytes(path)
    whole = written[: written.rfind(b"\n") + 1] or disk.encoded(csv_line(header))
    torn = 0
    try:
        rows = [*csv.reader(io.StringIO(whole.decode("utf-8-sig"), newline=""))]
    except (UnicodeDecodeError, csv.Error):
        rows = []  # damage of another kind, of which `read_columns` tells
    if any(len(row) != len(rows[0]) for row in rows):
        kept = [row for row in rows if len(row) == len(rows[0])]
        torn, whole = len(rows) - len(kept), disk.encoded("".join(map(csv_line, kept)))
    if whole != written:
        disk.replace(path, whole)
    return torn


def fingerprint(path: Path) -> dict[str, Any]:
    """The SHA-256 of a table, and how many rows it has below its header; of no file, those of an empty one."""
    path = stored(path)
    content = disk.read_bytes(path) if os.path.lexists(path) else b""
    return {"sha256": hashlib.sha256(content).hexdigest(), "rows": max(content.count(b"\n") - 1, 0)}


def read_columns(path: Path, columns: Iterable[Column]) -> dict[str, list[Any]]:
    """Read a CSV of a run folder. UsageError names file and line of what is torn, and of a cell that cannot be.

    Columns that are not asked for are left out. One that the file lacks is empty, unless it is `required`.
    """
    header, rows = csv_rows(path)
    cells = dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
    columns = [*columns]
    if missing := [each.name for each in columns if each.required and each.name not in cells]:
        raise UsageError(f"{path} lacks the column {missing[0]!r}")
    empty = [""] * len(rows)
    return {each.name: _typed(each, cells.get(each.name, empty), path) for each in columns}


def csv_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows, each as long as the header. UsageError names the first line that is not."""
    path = stored(path)
    text = disk.read_text(path)
    if not text.endswith("\n"):
        line = text.count("\n") + 1
        raise UsageError(f"{path}, line {line}: the line is torn; remove it, or continue the run with ctxbench resume")
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header, *rows = _rows_of(reader, path)
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error}") from None
    if repeated := [name for name, count in Counter(header).items() if count > 1]:
        raise UsageError(f"{path} has the column {repeated[0]!r} twice")
    return header, rows


def _rows_of(reader: "Reader", path: Path) -> Iterator[list[str]]:
    width = None
    for row in reader:
        width = width or len(row)
        if len(row) != width:
            raise UsageError(f"{path}, line {reader.line_num}: {len(row)} cells where the header has {width}")
        yield row


def _typed(column: Column, cells: Sequence[str], path: Path) -> list[Any]:
    known = {}
    for text in dict.fromkeys(cells):
        try:
            known[text] = column.read(text)
        except ValueError:
            where = f"{path}, line {cells.index(text) + 2}"
            raise UsageError(f"{where}: {column.name} is {text!r}, not {column.holds}") from None
    return [known[text] for text in cells]
