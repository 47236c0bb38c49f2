"""Sentences with numbers, for the README and the first lines of pages: each made from a stored run, with its scope."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median

from lists import ROOT, built_in, families, markdown, source, stored_run
from predictions import whole_passes

from ctxbench.base.mode import MODES
from ctxbench.base.number import fixed, significant
from ctxbench.base.texts import listed
from ctxbench.model.metric import RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.model.published import Printed
from ctxbench.model.read_suite import read_published
from ctxbench.plugins.audit.finding import Finding, Verdict, read
from ctxbench.plugins.claims.table import claim_table
from ctxbench.plugins.crossover.table import crossover_table
from ctxbench.plugins.predict.sheet import sheets
from ctxbench.plugins.recall.metric import SOLVED, USUAL_SHAPE, accuracy_of, first_of, full_rank, seeds_of
from ctxbench.report.published import unit_of, with_published
from ctxbench.report.run_data import RunData
from ctxbench.results import claims
from ctxbench.results.rows import rows_of

sys.path.insert(0, str(ROOT / "research"))

import check_commits
import gate_on_this_machine as gate
import repeatability

SUPPORTED, NOT_SUPPORTED = claims.Verdict.SUPPORTED, claims.Verdict.NOT_SUPPORTED
# For these figures of the paper a choice was made with the figure in view; docs/plugins/memory.md says which.
CHOSEN = (("acf", "infer"), ("ham_cd", "infer"), ("a2", "train"), ("sa", "train"), ("acf", "train"))
# What the run `recall` trained on, as its columns are named.
RECALLED = ("segment", "global", "lookup")
# What counts as near a published peak.
NEAR = 0.05
# What stands behind a number to say how sure it is.
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
INTERVAL = re.compile(r" \[[\d., ]+\]| \(\d+ of \d+ seeds\)")


def intro() -> str:
    """Purpose of ctxbench and the people that it is for, in a sentence, and a second one on what it needs."""
    return (
        "ctxbench compares the cost of your attention-like vision block with that of "
        f"{len(built_in())} others, for researchers who design one and engineers who choose one. Parameters, MACs and "
        f"GPU memory need no GPU. Times are measured, or predicted for {len(sheets())} GPUs."
    )


def blocks() -> str:
    """The modules of the registry by family, a sentence each."""
    lines = [line.removeprefix("- **") for line in families().splitlines()]
    text = " ".join(f"**{line[0].upper()}{line[1:]}." for line in lines)
    return f"{text} [What each computes and costs](docs/modules.md); [which one to take](docs/plugins/choose.md)."


def trust() -> str:
    """The claims of the README, each with its evidence and what is to be said against it."""
    rows = [(f"**{claim}**", *cells) for claim, *cells in (*_memory_trust(), *_time_trust())]
    return markdown(dict.fromkeys(("claim", "evidence", "but"), "text"), rows)


def _memory_trust() -> list[tuple[str, str, str]]:
    then, _ = _memory_equal()
    reached, chosen = sum(then.values()), len(_chosen(then))
    errors = peak_errors()
    near = sum(error <= NEAR for error in errors)
    (equal_params, params), (equal_macs, macs) = (_count(key) for key in ("params", "macs"))
    return [
        (
            "GPU memory: Table 3",
            f"{reached} of the {len(then)} figures of the Hamburger paper are met [to the MiB](docs/table3.md), under "
            "its year's PyTorch.",
            f"Not out of sample: all were known. For {chosen} of the {reached} a "
            "[choice was made to agree](docs/plugins/memory.md#two-devices-named-cuda). "
            "No GPU has measured them under that PyTorch.",
        ),
        (
            "GPU memory: published peaks",
            f"The [median error](docs/plugins/audit.md#mmsegmentation) for {len(errors)} peaks of a public model zoo "
            f"is {100 * median(errors):.2g} %. {near} are within {100 * NEAR:.0f} %.",
            "Out of sample but for one rule: these peaks showed that cuDNN takes its workspace. They also showed that "
            "some GB are 1,000 MiB; the errors do not use that.",
        ),
        (
            "CPU memory",
            "Equal to PyTorch's profiler [to the byte](docs/plugins/memory.md#how-it-is-tested), for each block in "
            "both modes.",
            "With oneDNN off for convolutions, whose blocks depend on the processor.",
        ),
        (
            "Params and MACs",
            f"{equal_params} of {params} parameter counts of Table 3 equal the paper's. Of MACs, {equal_macs} of "
            f"{macs} do.",
            "The others follow another convention, or [cannot be](docs/plugins/audit.md#hamburger).",
        ),
    ]


def peak_errors() -> list[float]:
    """Errors of the predicted peaks of mmsegmentation's networks, as shares of the printed ones."""
    return [abs(float(each.counted) / float(each.printed) - 1) for each in audits()["mmsegmentation"]]


def _time_trust() -> list[tuple[str, str, str]]:
    passes = whole_passes()
    infer = passes[(passes["card"] == "unknown") & (passes["pass"] == "infer")]
    cards = infer.assign(error=(infer["ratio"] - 1).abs()).groupby("device")
    error, held = (100 * each for each in (cards["error"].median().median(), cards["in_band"].mean().mean()))
    agree = repeatability.columns()["quick-idle"][0].partition(" (")[0]
    return [
        (
            "Predicted times",
            "For the median card that was left out of the fit, half of the inference times of networks are "
            f"[within {error:.0f} %](docs/validation.md). The 80 % band holds {held:.0f} %, each card counting the "
            "same.",
            "For choosing, not for citing.",
        ),
        (
            "Measured times",
            f"{agree} pairs of runs on an idle machine [agree](docs/repeatability.md).",
            "All are of one type of CPU. Weights are untrained.",
        ),
        (
            "The gate",
            "Beside a busy loop on each core, [gates of one minute](docs/gate-error-rates.md) found "
            f"{_found('loops', 10).partition(' of 10')[0]}. Each was of 10 %. Of the gates on unchanged code, "
            f"{_passed('loops')} passed.",
            "On one machine; each gate had four rows. What five minutes find is simulated: "
            f"5 % in {_simulated('+5%')} of gates.",
        ),
    ]


def _simulated(change: str) -> str:
    """Share of simulated gates of eight rows beside two busy loops that find a slowed row."""
    begin = f"| two busy loops | 8 | {change} | "
    page = (ROOT / "docs" / "gate-error-rates.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(begin)]
    return line.removeprefix(begin).partition(" | ")[0]


def table3_memory() -> str:
    """Reproduced share of the Hamburger paper's figures, with the method and PyTorch version."""
    then, today = _memory_equal()
    chosen = [f"`{module}` {mode}" for module, mode in _chosen(then)]
    (equal_params, params), (equal_macs, macs) = (_count(key) for key in ("params", "macs"))
    return (
        f"**Without a GPU, {sum(then.values())} of the {len(then)} GPU-memory figures that the Hamburger paper prints "
        f"are reached to the MiB under the PyTorch of 2020.** Under that of today {sum(today.values())} are. "
        f"{equal_params} of {params} parameter counts and {equal_macs} of {macs} MACs equal the paper's. For "
        f"{len(chosen)} of the {sum(then.values())} a choice was made to agree: {', '.join(chosen)}. The others follow "
        "from PyTorch's sources and the module's code. All were known when the rules were written, so they do not test "
        f"the prediction ({source('memory')}). No GPU has measured them under that PyTorch."
    )


def _memory_equal() -> list[dict[tuple[str, str], bool]]:
    """Memory figures of the paper, and whether each is reached under the PyTorch of 2020, and under that of today."""
    return [
        {(module, mode): equal for mode in MODES for module, equal in _equal(f"memory_{mode}_2020", ours.format(mode))}
        for ours in ("memory_{}_2020", "memory_{}")
    ]


def _chosen(then: Mapping[tuple[str, str], bool]) -> list[tuple[str, str]]:
    """Of the figures that are reached, those for which a choice was made."""
    return [each for each in CHOSEN if then[each]]


def _passed(state: str) -> str:
    """`20 of 20`: the stored gates on unchanged code that passed, in one state of the machine."""
    codes = [each["exit_code"] for each in gate.of_kind(gate.stored(), state, "unchanged")]
    return f"{codes.count(0)} of {len(codes)}"


def _found(state: str, share: int) -> str:
    """`23 of 40 slowdowns of 10 %, and called 0 ok`: what the stored gates did with rows that were slowed."""
    slow = gate.verdicts(gate.of_kind(gate.stored(), state, f"slower-{share}"), slowed=True)
    return f"{slow.count('regressed')} of {len(slow)} slowdowns of {share} %, and called {slow.count('ok')} ok"


def gate_lead() -> str:
    """Ends of the stored gates on unchanged code, and what they found of slower code."""
    gates = gate.stored()
    codes = [each["exit_code"] for state in gate.STATES for each in gate.of_kind(gates, state, "unchanged")]
    return (
        f"**Of {len(codes)} gates of one minute on unchanged code, {codes.count(0)} passed. Beside a busy loop on each "
        f"core, such gates found {_found('loops', 10)}.** The others were left inconclusive ({source('gate-loops')}). "
        "What five minutes find was simulated: in eight rows beside two busy loops, 10 % in "
        f"{_simulated('+10%')} of gates, 5 % in {_simulated('+5%')}."
    )


def gate_measured() -> str:
    """The series of gates on a real machine."""
    return gate.section(gate.stored())


def findings() -> str:
    """The findings that the README has, a line each."""
    return _lines(_first_found(), "docs/")


def every_finding() -> str:
    """All findings, a line each."""
    return _lines(_first_found() | _more_found())


def finding(page: str) -> str:
    """The finding that a page is about: its first line."""
    return f"**{(_first_found() | _more_found())[page]}**"


def _lines(found: Mapping[str, str], folder: str = "") -> str:
    """Findings without intervals, each with the page that has it."""
    return "\n".join(
        f"- {INTERVAL.sub('', text)} ([{Path(page).name.partition('.')[0]}]({folder}{page}))"
        for page, text in found.items()
    )


def _first_found() -> dict[str, str]:
    return {
        "plugins/recall.md": _one_step_ability(),
        "plugins/crossover.md": _crossing(),
        "scan.md": _scanned(),
        "suites/compile.md": _compiled(),
        "suites/gradient.md": _one_step(),
        "suites/deploy.md": _exported(),
        "plugins/audit.md": audited(),
    }


def _more_found() -> dict[str, str]:
    """Findings, by page, that the README leaves out: of each, what the claim of the run has found."""
    gradient = "The gradient in bfloat16 is near that in float64"
    far = _counted("does not hold", _must_be(NOT_SUPPORTED, "precision-cpu", gradient))
    halved = _counted("holds", _must_be(NOT_SUPPORTED, "precision-cpu", "bfloat16 halves the memory of training"))
    in_bfloat16 = "bfloat16 trains faster than float32 on this device"
    faster = _counted("faster", _must_be(NOT_SUPPORTED, "precision-cpu", in_bfloat16))
    _must_be(SUPPORTED, "spectrum-cpu", "Hamburger concentrates the energy")
    lower = "How many other modules lower the effective rank, too"
    others = _counted("lower it", _must_be(claims.Verdict.MEASURED, "spectrum-cpu", lower))
    enough = _must_be(NOT_SUPPORTED, "steps-cpu", "3 to 6 steps are enough").rpartition("Holds for ")[2]
    hams = listed([f"`{name}`" for name in re.findall(r"ham_\w+", enough)])
    memory = _must_be(NOT_SUPPORTED, "scaling-static-cpu", "Memory of training grows with H x W as the MACs do")
    fused = listed([f"`{name}`" for name in re.findall(r"(\w+) [\d.]+, MACs", memory)])
    slope = "Time ({}) grows with H x W no faster than MACs"
    train, infer = (_must_be(claims.Verdict.UNDECIDED, "scaling-cpu", slope.format(mode)) for mode in reversed(MODES))
    order = "Linear attention is softmax over unit queries and keys to first order"
    _must_be(SUPPORTED, "attention_approximation-cpu", order)
    _must_be(NOT_SUPPORTED, "attention_approximation-cpu", "The focus brings the weights nearer to softmax's")
    return {
        "suites/precision.md": f"On this CPU, bfloat16 makes {faster} blocks train faster. It halves the training "
        f"memory, predicted for CUDA, of {halved}. The gradients of {far} are not near those in float64.",
        "suites/spectrum.md": "Untrained, Hamburger concentrates the energy of its input in few singular values. "
        f"{others} other blocks lower the effective rank, too.",
        "suites/hamburger.md": f"By the error of the reconstruction, six steps are enough for {hams} alone.",
        "suites/scaling.md": "On this CPU, time grows with H x W no faster than MACs for "
        f"{_counted('no faster', train)} blocks in training, and for {_counted('no faster', infer)} in inference. "
        "The others are undecided.",
        "suites/scaling-static.md": "The training memory of all blocks grows with H x W as their MACs do, but for "
        f"{fused}.",
        "suites/attention_approximation.md": "Untrained, linear attention is softmax over unit queries and keys to "
        "first order. The focus of focused linear attention brings it no nearer to softmax.",
    }


def _counted(what: str, found: str) -> str:
    """`22 of 42`: the count of a finding."""
    (count,) = re.findall(rf"{what}: (\d+ of \d+)", found)
    return str(count)


def _must_be(verdict: claims.Verdict, run: str, claim: str) -> str:
    """Finding of a run on a claim; ends the command where its verdict is not that of a sentence below."""
    table = claim_table(stored_run(run))
    assert table is not None
    for said, judged, _, found in ([cell.text for cell in row.cells] for row in table.rows):
        if said == claim and judged.partition(" (proxy")[0] == verdict:
            return found
    raise SystemExit(f"{run} does not say {verdict} of {claim!r}: its sentence in docs/headlines.py is wrong")


def _one_step_ability() -> str:
    """Accuracy of Ham (NMF) with its own gradient and with that through all steps; the verdict is the run's."""
    rows = {json.loads(row["hparams"])["gradient"]: row for row in recalled() if row["module"] == "ham_nmf"}
    one_step, every = rows["one_step"], rows["bptt"]
    hparams, cells = json.loads(every["hparams"]), first_of("segment", every["recall_curve"])[1]["cells"]
    rank, full = (
        hparams["rank"],
        ", which is full rank in these scenes" * bool(full_rank(hparams, USUAL_SHAPE[0], cells)),
    )
    return (
        f"Hamburger (`ham_nmf`, rank {rank}{full}) segments scenes with a mean IoU of {reached(one_step, 'segment')} "
        f"with its own one-step gradient. With that through all steps it is {reached(every, 'segment')}. In the task "
        f"`lookup` the two reach {reached(one_step, 'lookup')} and {reached(every, 'lookup')}. Chance is 10 %. The "
        "one-step gradient tells no position what to write for others."
    )


def _compiled() -> str:
    _must_be(NOT_SUPPORTED, "compile-cpu", "Compiling keeps the gradient")
    run = stored_run("compile-cpu")
    frame = run.frame
    vq = frame[(frame["module"] == "ham_vq") & (frame["execution"] == "compile")]["error_train"].iloc[0]
    return (
        f"`torch.compile` of torch {run.environment['packages']['torch']} gives a wrong gradient for `ham_vq` on the "
        f"CPU, and nothing fails. Its error is {vq:.0f} times the gradient, the worst of {frame['module'].nunique()} "
        "blocks."
    )


def _crossing() -> str:
    run = stored_run("crossover-cpu")
    pairs = {row.cells[0].short or row.cells[0].text: row for row in crossover_table(run).rows}
    *_, train, infer = pairs["ham_nmf"].cells
    return (
        f"On one thread of this CPU, at {run.frame['channels'].iloc[0]} channels, `ham_nmf` trains faster than "
        f"fused attention (`mhsa`) from {train.text} positions on. It infers faster from {infer.text} on."
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
        f"positions on. At no size up to {run.frame['height'].max() ** 2} is it faster than {' or '.join(slower)}."
    )


def _one_step() -> str:
    _must_be(SUPPORTED, "gradient-cpu", "Training memory is O(1) in K with one step and O(K) with all steps")
    _must_be(NOT_SUPPORTED, "gradient-cpu", "The one-step gradient's direction is approximately right")
    cosine = stored_run("gradient-cpu").frame["gradient_cosine_input"].dropna()
    cosine = cosine[cosine < 1 - 1e-9]
    return (
        "The one-step gradient of the hams costs constant memory, but is not the exact one. At the input the cosine of "
        f"the two is {significant(cosine.min(), 2)} to {significant(cosine.max(), 2)}."
    )


def _exported() -> str:
    frame = stored_run("deploy-cpu").frame
    frame = frame[frame["height"] == frame["height"].max()]
    times = frame.pivot(index="module", columns="execution", values="latency_infer_ms")
    speed_up = times["eager"] / times["onnxruntime"]
    size = f"{frame['height'].iloc[0]} x {frame['width'].iloc[0]}"
    return (
        f"ONNX Runtime is {speed_up.median():.1f} times as fast as PyTorch in the median of {len(speed_up)} blocks. "
        f"For `spectral` it is {1 / speed_up['spectral']:.0f} times as slow. Maps are {size}."
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
    return (
        f"{counts.total()} figures of {len(found)} published cost tables were counted again. {counts[Verdict.EQUAL]} "
        f"are equal, {counts[Verdict.CONVENTION]} by another convention. {counts[Verdict.CONFIGURATION]} more are "
        f"equal by another configuration. Not as the rest of their column: {counts[Verdict.NOT_AS_COLUMN]}. "
        f"{counts[Verdict.NOT_REPRODUCED]} are not reproduced, and {counts[Verdict.CANNOT_BE]} cannot be. "
        "Some configurations were tried because they might fit."
    )


def recall_lead() -> str:
    """Blocks that look up, the best in `segment`, and the role of the hams' gradient."""
    rows = sorted(recalled(), key=lambda row: -row["recall_segment"])
    looks_up = listed([row_name(row) for row in rows if row["recall_lookup"] >= SOLVED])
    blocks = {row["module"] for row in rows} & {entry.key for entry in built_in()}
    controls = [
        f"`{row['module']}` {reached(row, 'segment')}" for row in rows if row["module"] in ("identity", "Local")
    ]
    return (
        f"**Of {len(blocks)} blocks, {looks_up} learned to look up. In `segment` the best is {row_name(rows[0])} with "
        f"{reached(rows[0], 'segment')}.** Controls: {', '.join(controls)}. {_one_step_ability()}"
    )


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


def _count(key: str) -> tuple[int, int]:
    """Number of the Hamburger paper's figures that are equal, and of all."""
    equal = [each for _, each in _equal(key, key)]
    return sum(equal), len(equal)


def is_printed(run: RunData, rows: Sequence[RecordRow], row: RecordRow, key: str, ours: str) -> bool:
    """Return whether the quantity `ours`, rounded to the digits that are published as `key`, equals them."""
    printed, own = row[f"{key}_published"], quantity(ours)
    if printed is None:
        return False
    return fixed(row[own.column] / unit_of(run, own, rows).factor, Printed.parse(printed).decimals) == printed


SENTENCES: dict[str, Callable[..., str]] = {
    "intro": intro,
    "blocks": blocks,
    "trust": trust,
    "findings": findings,
    "every-finding": every_finding,
    "prediction-lead": lambda: LINK.sub(r"\1", f"**{_time_trust()[0][1]}**"),
    "finding": finding,
    "table3-memory": table3_memory,
    "gate-lead": gate_lead,
    "gate-measured": gate_measured,
    "check-commits": check_commits.table,
    "crossing": lambda: f"**{_crossing()}**",
    "recall-lead": recall_lead,
    "audit-lead": lambda: f"**{audited()}**",
    "repeatability-lead": repeatability.lead,
    "repeatability": lambda: markdown(dict.fromkeys(repeatability.table()[0], "text"), repeatability.table()[1:]),
}
