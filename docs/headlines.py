"""Sentences with numbers, for the README and the first lines of pages: each made from a stored run, with its scope."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from evidence import evidence_list, source
from lists import ROOT, built_in, judged, markdown, stored_run

from ctxbench.base.mode import MODES
from ctxbench.base.number import fixed, significant
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.model.published import Printed
from ctxbench.model.read_suite import read_published
from ctxbench.plugins.audit.finding import Finding, Verdict, read
from ctxbench.plugins.crossover.table import crossover_table
from ctxbench.plugins.recall.metric import SOLVED, accuracy_of, first_of, seeds_of
from ctxbench.report.published import unit_of, with_published
from ctxbench.report.run_data import RunData
from ctxbench.results import claims
from ctxbench.results.rows import rows_of

sys.path.insert(0, str(ROOT / "research"))

import check_commits
import gate_on_this_machine as gate
import repeatability

# For these figures of the paper a choice was made with the figure in view; docs/plugins/memory.md says which.
CHOSEN = (("acf", "infer"), ("ham_cd", "infer"), ("a2", "train"), ("sa", "train"), ("acf", "train"))
# What the run `recall` trained on, as its columns are named; so many of the best are in its page's first line.
RECALLED, MOST_NAMED = ("segment", "global", "lookup"), 5


def facts() -> str:
    """Three reasons to use it, with a number each."""
    years = [entry.year for entry in built_in() if entry.year]
    return "\n".join(
        [
            f"- **Costs without a GPU**: {_memory_figures()} ([how](docs/plugins/memory.md#two-devices-named-cuda); "
            f"{source('memory')}).",
            f"- **{len(built_in())} blocks** from {min(years)} to {max(years)} ([list](docs/modules.md)), and yours "
            "beside them with one command.",
            f'- **A gate for CI** that can say "I don\'t know": {gate_counts()} ([how often it is '
            f"wrong](docs/gate-error-rates.md); {source('gate')}).",
        ]
    )


def table3_memory() -> str:
    return f"**Without a GPU, {_memory_figures()}** ({source('memory')}). No GPU has confirmed them."


def _memory_figures() -> str:
    """Reproduced share of the Hamburger paper's memory figures, with the method and PyTorch version."""
    then, today = (
        {(module, mode): equal for mode in MODES for module, equal in _equal(f"memory_{mode}_2020", ours.format(mode))}
        for ours in ("memory_{}_2020", "memory_{}")
    )
    reached = sum(then.values())
    chosen = [f"`{module}` {mode}" for module, mode in CHOSEN if then[module, mode]]
    return (
        f"{reached} of the {len(then)} GPU-memory figures that the Hamburger paper prints are reached to the MiB under "
        f"the PyTorch of 2020 ({sum(today.values())} under that of today), and {_count('params')} parameter counts "
        f"and {_count('macs')} MACs to the digit. For {len(chosen)} of the {reached} ({', '.join(chosen)}) a "
        "choice was made to agree; the others follow from PyTorch's sources and the module's code. None was predicted "
        "before it was known"
    )


def gate_counts() -> str:
    """Gates on unchanged code by their end, false alarms, and slowdowns that were found, by kind."""
    gates = gate.stored()
    codes = [each["exit_code"] for each in gate.of_kind(gates, "unchanged")]
    plain = gate.verdicts(gates.values(), slowed=False)
    kinds = {"slowdowns of 10 % by extra passes": "injected", "rows with slower code": "slower"}
    slow = {what: gate.verdicts(gate.of_kind(gates, kind), slowed=True) for what, kind in kinds.items()}
    ended = f"of {len(codes)} gates of unchanged code {codes.count(0)} green, {codes.count(3)} undecided"
    alarms = f"{plain.count('regressed')} false alarms in {len(plain)} verdicts on unchanged code"
    return "; ".join([f"{ended}, {alarms}", *(f"of {_ended(what, own)}" for what, own in slow.items() if own)])


def _ended(what: str, verdicts: list[str]) -> str:
    """Outcomes of gates on slowdowns of one kind."""
    found, open_ = (verdicts.count(verdict) for verdict in ("regressed", "inconclusive"))
    return f"{len(verdicts)} {what} {found} found, {open_} left inconclusive, {len(verdicts) - found - open_} passed"


def gate_lead() -> str:
    return (
        f"**On a real machine: {gate_counts()} ({source('gate')}). The rule was another one then: what follows, up to "
        "the series on a real machine, is that of today.**"
    )


def gate_measured() -> str:
    """The series of gates on a real machine."""
    return gate.section(gate.stored())


def findings() -> str:
    """Findings, a line each, with the page that shows it."""
    found = {
        "plugins/recall": _one_step_ability(),
        "plugins/crossover": _crossing(),
        "scan": _scanned(),
        "suites/compile": _compiled(),
        "suites/gradient": _one_step(),
        "suites/deploy": _exported(),
        "plugins/audit": audited(),
    }
    return "\n".join(f"- {text} ([{Path(page).name}](docs/{page}.md))." for page, text in found.items())


def _must_be(verdict: claims.Verdict, run: str, claim: str) -> None:
    """Ends the command where a run has another verdict on the claim that a sentence below puts into words."""
    if claim not in judged(ROOT / "results" / run).get(verdict, []):
        raise SystemExit(f"{run} does not say {verdict} of {claim!r}: its sentence in docs/headlines.py is wrong")


def _one_step_ability() -> str:
    """Accuracy of Ham (NMF) with its own gradient and with that through all steps; the verdict is the run's."""
    rows = {json.loads(row["hparams"])["gradient"]: row for row in recalled() if row["module"] == "ham_nmf"}
    texts = [
        f"{verb} {' and '.join(reached(rows[gradient], kind) for gradient in ('one_step', 'bptt'))}"
        for verb, kind in (("segments labelled scenes with a mean IoU of", "segment"), ("looks up", "lookup"))
    ]
    rank = json.loads(rows["bptt"]["hparams"])["rank"]
    return (
        f"Hamburger (`ham_nmf`, rank {rank}), with its own one-step gradient and with that through all steps, "
        f"{', and '.join(texts)}; chance is 10 %. The one-step gradient reaches no other position, so that no cell is "
        "told what to write for others"
    )


def _compiled() -> str:
    _must_be(claims.Verdict.NOT_SUPPORTED, "compile-cpu", "Compiling keeps the gradient")
    run = stored_run("compile-cpu")
    frame = run.frame
    vq = frame[(frame["module"] == "ham_vq") & (frame["execution"] == "compile")]["error_train"].iloc[0]
    return (
        f"`torch.compile` of torch {run.environment['packages']['torch']} gives a wrong gradient for `ham_vq` on the "
        f"CPU: its error is {vq:.0f} times the gradient, and nothing fails"
    )


def _crossing() -> str:
    run = stored_run("crossover-cpu")
    pairs = {row.cells[0].short or row.cells[0].text: row for row in crossover_table(run).rows}
    *_, train, infer = pairs["ham_nmf"].cells
    return (
        f"On one thread of this CPU, at {run.frame['channels'].iloc[0]} channels, `ham_nmf` is faster than fused "
        f"attention (`mhsa`) from {train.text} positions on in training, and from {infer.text} in inference"
    )


def _scanned() -> str:
    run = stored_run("scan-cpu")
    beside = {
        row.cells[1].text: row.cells[-1].text
        for row in crossover_table(run).rows
        if row.cells[0].text.endswith("ssm_ratio=1.0")
    }
    slower = [f"`{other}`" for other, infer in beside.items() if infer.startswith(">")]
    return (
        f"There, a selective scan of PyTorch's own operators (`ss2d`) infers faster than `mhsa` from {beside['mhsa']} "
        f"positions on; at no size up to {run.frame['height'].max() ** 2} faster than {' or '.join(slower)}"
    )


def _one_step() -> str:
    _must_be(
        claims.Verdict.SUPPORTED, "gradient-cpu", "Training memory is O(1) in K with one step and O(K) with all steps"
    )
    _must_be(claims.Verdict.NOT_SUPPORTED, "gradient-cpu", "The one-step gradient's direction is approximately right")
    cosine = stored_run("gradient-cpu").frame["gradient_cosine_input"].dropna()
    cosine = cosine[cosine < 1 - 1e-9]
    return (
        "The hams' one-step gradient costs constant memory, but is not the exact one: the cosine of the two at the "
        f"input is {significant(cosine.min(), 2)} to {significant(cosine.max(), 2)}"
    )


def _exported() -> str:
    frame = stored_run("deploy-cpu").frame
    frame = frame[frame["height"] == frame["height"].max()]
    times = frame.pivot(index="module", columns="execution", values="latency_infer_ms")
    speed_up = times["eager"] / times["onnxruntime"]
    size = f"{frame['height'].iloc[0]} x {frame['width'].iloc[0]}"
    return (
        f"At {size}, ONNX Runtime runs blocks {speed_up.median():.1f} times as fast as PyTorch in the median, and "
        f"`spectral` {1 / speed_up['spectral']:.0f} times as slow"
    )


@cache
def audits() -> dict[str, list[Finding]]:
    """The stored findings about published tables, by the name of the table."""
    return {path.stem: read(path) for path in sorted((ROOT / "results" / "audit").glob("*.csv"))}


def audited() -> str:
    """Number of published figures equal to the count, by convention, for the sources that were read."""
    found = {name: own for name, own in audits().items() if read_published(name).seen == "read"}
    counts = Counter(each.verdict for own in found.values() for each in own)
    del counts[Verdict.NOT_JUDGED]
    parts = [f"{counts[each]} {each}" for each in Verdict if counts[each]]
    return (
        f"{counts.total()} figures of {len(found)} published cost tables, counted again: {', '.join(parts)}. "
        "Some rules and configurations were made to fit"
    )


def recall_lead() -> str:
    """Ranking of the blocks in `segment`, those that look up, and the role of the hams' gradient."""
    rows = sorted(recalled(), key=lambda row: -row["recall_segment"])
    at = {(row["module"], row["settings"]): reached(row, "segment") for row in rows}
    best = [f"{row_name(row)} {reached(row, 'segment')}" for row in rows[:MOST_NAMED]]
    solved = {
        kind: [row_name(row) for row in rows if row[f"recall_{kind}"] >= SOLVED and row["module"] != "Local"]
        for kind in RECALLED[1:]
    }
    controls = [f"{name} {text}" for (name, _), text in at.items() if name in ("identity", "Local")]
    blocks = {row["module"] for row in rows} & {entry.key for entry in built_in()}
    return (
        f"{len(blocks)} of the registry's {len(built_in())} blocks were trained. **In `segment` the best are "
        f"{', '.join(best)}; controls: {', '.join(controls)}.** `lookup` is solved "
        f"({SOLVED:g} % or more) by {_listed(solved['lookup'])}, `global` by {_listed(solved['global'])}. "
        f"{_one_step_ability()}."
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"


def row_name(row: RecordRow) -> str:
    """A module in code, with what differs from its defaults."""
    return f"`{row['module']}`" + (f" ({row['settings']})" if row["changed"] else "")


@cache
def recalled() -> list[RecordRow]:
    """The rows of the stored runs of `recall` that were trained."""
    runs = sorted(folder.name for folder in (ROOT / "results").glob("recall-*"))
    return [row for run in runs for row in rows_of(stored_run(run).frame) if row["recall_curve"]]


def reached(row: RecordRow, kind: str) -> str:
    """`94 % [92, 96]` of segment, `83 % (5 of 8 seeds)` elsewhere."""
    name, found = first_of(kind, row["recall_curve"])
    value, interval = accuracy_of(name, found).texts(decimals=0)
    return f"{value} % {interval}" if interval else f"{value} % {seeds_of(kind)(row).replace(')', ' seeds)')}"


def _equal(key: str, ours: str) -> list[tuple[str, bool]]:
    """By module: whether the quantity `ours` equals what the Hamburger paper prints as `key`."""
    run = stored_run("table3-static")
    rows = rows_of(with_published(run))
    printed = [row for row in rows if row[f"{key}_published"] is not None]
    return [(str(row["module"]), is_printed(run, rows, row, key, ours)) for row in printed]


def _count(key: str) -> str:
    equal = [each for _, each in _equal(key, key)]
    return f"{sum(equal)} of {len(equal)}"


def is_printed(run: RunData, rows: Sequence[RecordRow], row: RecordRow, key: str, ours: str) -> bool:
    """Return whether the quantity `ours`, rounded to the digits that are published as `key`, equals them."""
    printed, own = row[f"{key}_published"], quantity(ours)
    if printed is None:
        return False
    return fixed(row[own.column] / unit_of(run, own, rows).factor, Printed.parse(printed).decimals) == printed


SENTENCES: dict[str, Callable[[], str]] = {
    "evidence": evidence_list,
    "facts": facts,
    "findings": findings,
    "table3-memory": table3_memory,
    "gate-lead": gate_lead,
    "gate-measured": gate_measured,
    "check-commits": check_commits.table,
    "crossing": lambda: f"**{_crossing()}.**",
    "recall-lead": recall_lead,
    "audit-lead": lambda: f"**{audited()}.**",
    "repeatability-lead": repeatability.lead,
    "repeatability": lambda: markdown(dict.fromkeys(repeatability.table()[0], "text"), repeatability.table()[1:]),
}
