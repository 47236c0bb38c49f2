"""Damages of a run folder, at random: of bytes, lines, columns and cells, of keys of `run.json`, of whole files."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from ctxbench.results.csv_file import csv_line
from ctxbench.results.tables import tables

# What a cell is replaced by.
CELLS = ("-1", "inf", "nan", "zz", "", "1e999", "\x1b[2J")
# What a key of `run.json` is replaced by.
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    2**70,
    "",
    "x",
    "../../etc",
    "\x1b[2J",
    [],
    [1],
    {},
    {"x": 1},
    [[[]]],
)


def cut(content: bytes, chance: Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flip(content: bytes, chance: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def tear(content: bytes, chance: Random) -> bytes:
    """Without the end of one line, line feed included."""
    lines = content.splitlines(keepends=True)
    index = chance.randrange(1, len(lines)) if len(lines) > 1 else 0
    lines[index] = lines[index][: chance.randrange(len(lines[index]))]
    return b"".join(lines)


def exchange(content: bytes, chance: Random) -> bytes:
    """Two cells in each other's place."""
    rows = [*csv.reader(io.StringIO(content.decode()))]
    (row, i), (other, j) = [(each := chance.choice(rows), chance.randrange(len(each))) for _ in range(2)]
    row[i], other[j] = other[j], row[i]
    return "".join(map(csv_line, rows)).encode()


def replace(content: bytes, chance: Random) -> bytes:
    """Something else in one cell."""
    rows = [*csv.reader(io.StringIO(content.decode()))]
    row = chance.choice(rows)
    row[chance.randrange(len(row))] = chance.choice(CELLS)
    return "".join(map(csv_line, rows)).encode()


def drop_line(content: bytes, chance: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    lines.pop(chance.randrange(len(lines)))
    return b"".join(lines)


DAMAGES = [cut, flip, tear, exchange, replace, drop_line]


def tear_tables(run: Path, chance: Random) -> None:
    """Leave some tables as a killed writer does: they end anywhere, or lack the end of a line before the last."""
    for name in chance.sample([*tables()], chance.randint(1, len(tables()))):
        (run / name).write_bytes(chance.choice((cut, tear))((run / name).read_bytes(), chance))


def damage(run: Path, chance: Random) -> None:
    """Do one to three damages to a run that has ended, or that its writer left."""
    if chance.random() < 0.3:
        change_json(run / "run.json", lambda meta: meta.update(state="running", tables={}))
    for _ in range(chance.randint(1, 3)):
        chance.choice([damage_table, damage_table, damage_column, damage_meta, damage_meta, replace_file])(run, chance)


def damage_table(run: Path, chance: Random) -> None:
    """Bytes, lines or cells of a table."""
    path = run / chance.choice([*tables(), "run.json"])
    if path.is_file() and (content := path.read_bytes()):
        is_table = path.suffix == ".csv"
        try:
            path.write_bytes(chance.choice(DAMAGES if is_table else DAMAGES[:2])(content, chance))
        except (UnicodeDecodeError, csv.Error, IndexError, ValueError):
            return  # an earlier damage has left no table


def damage_column(run: Path, chance: Random) -> None:
    """A column that is gone, is there twice or has another name."""
    path = run / chance.choice([*tables()])
    if not path.is_file():
        return
    rows = [*csv.reader(io.StringIO(path.read_bytes().decode(errors="replace")))]
    if not rows or not rows[0]:
        return
    at, kind = chance.randrange(len(rows[0])), chance.randrange(3)
    for number, row in enumerate(rows):
        row[at : at + 1] = [[], row[at : at + 1] * 2, ["other"] if number == 0 else row[at : at + 1]][kind]
    path.write_text("".join(map(csv_line, rows)), errors="replace")


def damage_meta(run: Path, chance: Random) -> None:
    """A key of `run.json`, at any depth, that is gone or has another value."""

    def change(meta: Any) -> None:
        place = meta
        while isinstance(place, dict) and place:
            key = chance.choice([*place])
            if isinstance(place[key], dict) and place[key] and chance.random() < 0.7:
                place = place[key]
            elif chance.random() < 0.3:
                del place[key]
                return
            else:
                place[key] = chance.choice(VALUES)
                return

    change_json(run / "run.json", change)


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    if not path.is_file():
        return  # an earlier damage
    try:
        meta = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return  # the same
    change(meta)
    path.write_text(json.dumps(meta))


def replace_file(run: Path, chance: Random) -> None:
    """A file that is gone, or has something else in its place."""
    path = chance.choice([each for each in run.iterdir() if each.is_file() or each.is_symlink()] or [run / "run.json"])
    path.unlink(missing_ok=True)
    put: list[Callable[[], object]] = [
        lambda: None,
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(path.name),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.write_text("[" * 100_000),
        lambda: path.write_text(""),
        lambda: path.write_bytes(b"\xff\xfe" * 100),
    ]
    chance.choice(put)()
