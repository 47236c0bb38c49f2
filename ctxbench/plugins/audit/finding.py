"""Verdict of an audit on one published figure, and the files that keep it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from pathlib import Path

from ctxbench.base import disk
from ctxbench.base.texts import csv_cell
from ctxbench.results.csv_file import csv_line


class Verdict(StrEnum):
    """Verdict on a published figure beside the count."""

    EQUAL = "equal"
    CONVENTION = "equal by another convention"
    CONFIGURATION = "equal by another configuration"
    NOT_AS_COLUMN = "not as the rest of the column"
    CANNOT_BE = "cannot be"
    NOT_REPRODUCED = "not reproduced"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class AuditFinding:
    """A figure of a row as printed, what is counted of it in the same unit, and the verdict with its reason."""

    row: str
    quantity: str
    printed: str
    counted: str
    verdict: str
    why: str


HEADER = tuple(each.name for each in fields(AuditFinding))


def write(path: Path, findings: Sequence[AuditFinding]) -> None:
    """Write findings as CSV. UsageError if the file cannot be written."""
    rows = (map(csv_cell, astuple(each)) for each in findings)
    disk.write(path, "".join(map(csv_line, [HEADER, *rows])), is_named=True)


def read(path: Path) -> list[AuditFinding]:
    """The findings in a file that `write` has written."""
    return [AuditFinding(**row) for row in csv.DictReader(io.StringIO(disk.read_text(path)))]
