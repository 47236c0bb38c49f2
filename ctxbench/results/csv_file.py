"""The CSV files of a run folder: appended to whole or not at all, read back with types, each fault told by its line."""

import csv
import io
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.errors import UsageError
from ctxbench.metrics.base import Column

if TYPE_CHECKING:
    import pandas as pd


def csv_line(cells: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def append_text(path: Path, text: str) -> None:
    """Append all of `text` or, if the disk fills, none of it."""
    with path.open("ab") as file:
        start = file.tell()
        try:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, start)
            raise


def replace_file(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def read_table(
    path: Path, columns: Mapping[str, Column], schema: int, optional: Collection[str] = ()
) -> "pd.DataFrame":
    """Read a CSV of a run folder. UsageError names the file and the line that is torn or holds a cell of another type.

    Columns that are not asked for are left out. The `optional` ones and those that came after `schema` may be lacking,
    and are then empty; so may the file, if all of them came after it.
    """
    import pandas as pd

    later = [name for name, column in columns.items() if column.since > schema or name in optional]
    if len(later) == len(columns) and not path.exists():
        return pd.DataFrame(columns=[*columns])
    header, rows = _csv_rows(path)
    cells: dict[str, Sequence[str]] = {name: [""] * len(rows) for name in later}
    cells |= dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
    found = {name: name if name in cells else column.former for name, column in columns.items()}
    missing = [name for name, here in found.items() if here not in cells]
    if missing:
        raise UsageError(f"{path} lacks the column {missing[0]!r}")
    return pd.DataFrame({name: _typed(name, cells[found[name]], column.type, path) for name, column in columns.items()})


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows, each as long as the header. UsageError names the first line that is not."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no {path}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: the text is not UTF-8; save the file as UTF-8") from None
    if not text.endswith("\n"):
        line = text.count("\n") + 1
        raise UsageError(f"{path}, line {line}: the line is torn; remove it, or continue the run with ctxbench resume")
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader)
    rows = []
    for row in reader:
        if len(row) != len(header):
            raise UsageError(f"{path}, line {reader.line_num}: {len(row)} cells where the header has {len(header)}")
        rows.append(row)
    return header, rows


def _typed(name: str, cells: Sequence[str], kind: type, path: Path) -> "pd.Series[Any]":
    import pandas as pd

    if kind is str:
        return pd.Series(cells, dtype="string")
    known: dict[str, Any] = {"": None}
    for text in dict.fromkeys(cells):
        try:
            known[text] = kind(text) if text else None
            if kind is int and text and not -(2**63) <= known[text] < 2**63:
                raise ValueError
        except ValueError:
            wanted = "an integer of 64 bits" if kind is int else "a number"
            raise UsageError(f"{path}, line {cells.index(text) + 2}: {name} is {text!r}, not {wanted}") from None
    # Counts go to Int64 as objects, not through float64: above 2^53 they stay exact.
    return pd.Series([known[text] for text in cells], dtype="Int64" if kind is int else "float64")
