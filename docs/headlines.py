"""Numbers of the sentences in sentences.toml, taken from stored runs."""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from lists import ROOT, stored_run, table
from predictions import whole_passes

from ctxbench.base.mode import MODES
from ctxbench.base.number import fixed
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.model.published import Printed, Published
from ctxbench.model.read_suite import read_published
from ctxbench.plugins.audit.finding import AuditFinding, Verdict, read
from ctxbench.plugins.crossover.table import crossover_table
from ctxbench.report.published import unit_of, with_published
from ctxbench.report.run_data import RunData
from ctxbench_science.recall.metric import accuracy_of, first_of, seeds_of

sys.path.insert(0, str(ROOT / "research"))

import gate_on_this_machine as gate

# For these figures of the paper a choice was made with the figure in view; docs/plugins/memory.md says which.
CHOSEN = (("acf", "infer"), ("ham_cd", "infer"), ("a2", "train"), ("sa", "train"), ("acf", "train"))


def peak_errors() -> list[float]:
    """Errors of the predicted peaks of mmsegmentation's networks, as shares of the printed ones."""
    return [abs(float(each.counted) / float(each.printed) - 1) for each in audits()["mmsegmentation"]]


def added_by_heads() -> list[float]:
    """Errors in GB of what a head of mmsegmentation adds to the FCN of its column."""
    off: dict[tuple[str, ...], float] = {}
    for each in audits()["mmsegmentation"]:
        head, _, column = each.row.partition(" ")
        off[head, column] = float(each.printed) - float(each.counted)
    own = (key for key in off if key[0] != "fcn" and ("fcn", key[1]) in off)
    return [round(abs(off[key] - off["fcn", key[1]]), 6) for key in own]


def unknown_cards() -> tuple[float, float]:
    """Percent: the median card's median error of inference times that no fit has seen, and the cards' mean coverage."""
    passes = whole_passes()
    infer = passes[(passes["card"] == "unknown") & (passes["pass"] == "infer")]
    cards = infer.assign(error=(infer["ratio"] - 1).abs()).groupby("device")
    return 100 * cards["error"].median().median(), 100 * cards["in_band"].mean().mean()


def simulated(change: str) -> str:
    """Share of simulated gates of eight rows beside two busy loops that find a slowed row."""
    found = table("gate-simulated/budget.csv").set_index(["beside the gate", "rows", "one row's change"])["found"]
    return str(found["two busy loops", 8, change])


def exit_codes(kind: str) -> list[int]:
    """Of the stored gates of a kind, in all states of the machine."""
    gates = gate.stored()
    return [each["exit_code"] for state in gate.STATES for each in gate.of_kind(gates, state, kind)]


def passed(state: str) -> str:
    """`20 of 20`: the stored gates on unchanged code that passed, in one state of the machine."""
    codes = [each["exit_code"] for each in gate.of_kind(gate.stored(), state, "unchanged")]
    return f"{codes.count(0)} of {len(codes)}"


def slowed(state: str, share: int) -> Counter[str | None]:
    """Verdicts of the stored gates on rows that were slowed by so many percent."""
    return Counter(gate.verdicts(gate.of_kind(gate.stored(), state, f"slower-{share}"), slowed=True))


def memory_equal() -> list[dict[tuple[str, str], bool]]:
    """Memory figures of the paper, and whether each is reached under the PyTorch of 2020, and under that of today."""
    return [
        {(module, mode): equal for mode in MODES for module, equal in _equal(f"memory_{mode}_2020", ours.format(mode))}
        for ours in ("memory_{}_2020", "memory_{}")
    ]


def chosen(then: Mapping[tuple[str, str], bool]) -> list[tuple[str, str]]:
    """Of the figures that are reached, those for which a choice was made."""
    return [each for each in CHOSEN if then[each]]


def equal(key: str) -> str:
    """`5 of 8`: the Hamburger paper's figures that are equal."""
    found = [each for _, each in _equal(key, key)]
    return f"{sum(found)} of {len(found)}"


def _equal(key: str, ours: str) -> list[tuple[str, bool]]:
    """By module: whether the quantity `ours` equals what the Hamburger paper prints as `key`."""
    run = stored_run("table3-static")
    rows = with_published(run)
    printed = [row for row in rows if row[f"{key}_published"] is not None]
    return [(str(row["module"]), is_printed(run, rows, row, key, ours)) for row in printed]


def is_printed(run: RunData, rows: Sequence[RecordRow], row: RecordRow, key: str, ours: str) -> bool:
    """Return whether the quantity `ours`, rounded to the digits that are published as `key`, equals them."""
    printed, own = row[f"{key}_published"], quantity(ours)
    if printed is None:
        return False
    return fixed(row[own.column] / unit_of(run, own, rows).factor, Printed.parse(printed).decimals) == printed


def unequal_macs() -> list[str]:
    """`` `da` cannot be ``: the MACs of Table 3 that are not equal, and what was found of each."""
    found = [each for each in audits()["hamburger"] if each.quantity == "macs" and each.verdict != Verdict.EQUAL]
    said = {"not reproduced": "is not reproduced", "not as the rest of the column": "is counted unlike its column"}
    return [f"`{each.row}` {said.get(each.verdict, each.verdict)}" for each in found]


def zoo_unmet() -> int:
    """Number of mmsegmentation's printed peaks that are not reproduced."""
    return sum(each.verdict == Verdict.NOT_REPRODUCED for each in audits()["mmsegmentation"])


def crossings(run: str) -> list[list[str]]:
    """The rows of a run's table of crossovers."""
    return [[cell.short or cell.text for cell in row.cells] for row in crossover_table(stored_run(run)).rows]


@cache
def audits() -> dict[str, list[AuditFinding]]:
    """The stored findings about published tables, by the name of the table."""
    return {path.stem: read(path) for path in sorted((ROOT / "results" / "audit").glob("*.csv"))}


def papers() -> dict[str, tuple[Published, list[AuditFinding]]]:
    """Papers whose public code was counted again, and the findings on their figures, by the names of their files."""
    files = sorted((ROOT / "results" / "recount-2026").glob("*.csv"))
    tables = {
        each.stem: read_published(str(ROOT / "research" / "papers" / f"{each.stem}.toml"), Published) for each in files
    }
    return {path.stem: (tables[path.stem], read(path)) for path in files}


def audited() -> tuple[int, Counter[Verdict]]:
    """Number of tables whose source was read, and the verdicts on their figures."""
    found = [own for name, own in audits().items() if read_published(name, Published).seen == "read"]
    verdicts = (each.verdict for own in found for each in own)
    return len(found), Counter(each for each in verdicts if each != Verdict.NOT_JUDGED)


def recalled() -> list[RecordRow]:
    """The rows of the stored run of `recall` that were trained."""
    return [row for row in stored_run("recall-cpu").rows if row["recall_curve"]]


def hams() -> dict[str, RecordRow]:
    """The rows of Ham (NMF) by the gradient that it was trained with."""
    return {json.loads(row["hparams"])["gradient"]: row for row in recalled() if row["module"] == "ham_nmf"}


def ranked() -> list[RecordRow]:
    """The rows of the run `recall_rank`, in which a ham's matrix is 64 x 256."""
    return [row for row in stored_run("recall_rank-cpu").rows if row["recall_curve"]]


def bottleneck(rank: int) -> dict[str, RecordRow]:
    """The rows of a ham at a rank, by the gradient that it was trained with."""
    hams = ((json.loads(row["hparams"]), row) for row in ranked() if row["module"] == "ham_nmf")
    return {hparams["gradient"]: row for hparams, row in hams if hparams["rank"] == rank}


def cells(row: RecordRow) -> int:
    """Number of positions of the scenes that a block was trained on."""
    return int(first_of("segment", row["recall_curve"])[1]["cells"])


def row_name(row: RecordRow) -> str:
    """A module in code, with what differs from its defaults."""
    return f"`{row['module']}`" + (f" ({row['settings']})" if row["changed"] else "")


def reached(row: RecordRow, kind: str) -> str:
    """`94 % [92, 96]` of segment, `83 % (5 of 8 seeds)` elsewhere."""
    name, found = first_of(kind, row["recall_curve"])
    value, interval = accuracy_of(name, found).texts(decimals=0)
    return f"{value} % {interval}" if interval else f"{value} % {seeds_of(kind)(row).replace(')', ' seeds)')}"
