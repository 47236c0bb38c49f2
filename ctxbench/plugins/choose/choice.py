"""Modules that fit into so much memory at an input, and their predicted times on devices that are not here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from ctxbench.base.dtypes import DTYPES
from ctxbench.base.mode import Mode
from ctxbench.base.notes import Note, joined
from ctxbench.base.number import NOT_KNOWN, Number, order
from ctxbench.base.texts import listed
from ctxbench.engine.one_process import CaseOutcome, Executor, Plan
from ctxbench.engine.progress import Quiet
from ctxbench.engine.remote import ask
from ctxbench.engine.together import by_passes, counted_together, measure_together
from ctxbench.model.case import EMPTY, Case, Measure
from ctxbench.model.conditions import CONDITIONS, phrases
from ctxbench.model.metrics import quantity, read_number
from ctxbench.model.record import Record
from ctxbench.plugin import brought
from ctxbench.plugins.memory.metric import card_of
from ctxbench.plugins.memory.step import MOST_BATCHES
from ctxbench.plugins.predict import NO_TF32
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.report.beside import beside
from ctxbench.table.table import Cell, Origin, Table, plain_table

# The family whose modules give every position the same context.
POOLING = "pooling"


@dataclass(frozen=True)
class Candidate:
    """A module at an input: the predicted peak in bytes, a time for each device, and why there is none of either.

    `mixes` is whether it lets positions differ in what they get, `local` the mark of a local block; `batch` is the
    largest that fits, if it was asked for;
    `told` are sentences on the libraries that were asked for the peak. `place` is the name of its input in a network,
    `slow` why its time may be above the one that is there.
    `defaults` has, for each device, PyTorch's own default over the time in float32 without TF32, where they differ.
    """

    case: Case
    memory: int | None
    times: Mapping[str, Number]
    reason: str
    mixes: bool
    local: str = ""
    batch: int | None = None
    told: Sequence[str] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)
    place: str = ""
    slow: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether it stands for no module at all."""
        return self.case.module == EMPTY

    def excess(self, limit: int) -> int:
        """Bytes above the limit; 0 where it fits or the peak is not known."""
        return max(0, (self.memory or 0) - limit)


def candidates(
    cases: Sequence[Case], mode: Mode, measure: Measure, executor: Executor, progress: Quiet
) -> Iterator[Candidate]:
    """Each module of the cases, whose devices are all known by their data sheets, under each of its other conditions.

    `progress` is told which one begins, and what is known of it then.
    """
    alike = {own[0].passes: own for own in by_passes(cases)}
    found: dict[str, dict[str, Record]] = {}

    def begin(case: Case) -> None:
        if case.passes not in found:
            found[case.passes] = {}
            progress.stage(f"[{len(found)}/{len(alike)}] predicting {case.title}")

    def keep(case: Case, outcome: CaseOutcome) -> None:
        found[case.passes][case.device] = outcome.record
        progress.known(outcome.record, None)

    for group in counted_together(cases):
        measure_together(group, Plan(measure, ["params", "memory"]), executor, Quiet(), begin, keep)
    for passes, own in alike.items():
        records = found[passes]
        first = next(iter(records.values()))
        read = {device: read_number(record, quantity(f"latency_{mode}")) for device, record in records.items()}
        times = {device: value for device, value in read.items() if value}
        reason = first.message or joined(note for note in first.notes if note.about in ("", f"latency_{mode}"))
        peaks = [record.get(_column(mode)) for record in records.values()]
        peak = max((each for each in peaks if each is not None), default=None)
        case = own[0]
        mixes = case.entry.mixes_positions(case.hparams) and case.entry.family != POOLING
        defaults = {
            device: note.values["ratio"]
            for device, record in records.items()
            for note in record.notes
            if (note.code, note.about) == (NO_TF32, f"latency_{mode}")
        }
        reason = "" if peak is not None and times else reason
        told = _told(records.values(), f"memory_{mode}")
        yield Candidate(case, peak, times, reason, mixes, local_of(case), told=told, defaults=defaults)


def _told(records: Iterable[Record], about: str) -> list[str]:
    """Sentences on the libraries that were asked what they take on the devices of the records."""
    codes = {code for plugin, _ in brought("workspaces") for code in plugin.notes}
    return [note.shared for record in records for note in record.notes if note.about == about and note.code in codes]


def local_of(case: Case) -> str:
    """Mark of a local block, `local: 7 x 7`; "" of any other."""
    return case.entry.locality(case.shape, case.hparams)


def conditions_of(candidate: Candidate) -> str:
    """Conditions of a candidate's prediction, for a person; without the device."""
    text = ", ".join(phrases({name: [getattr(candidate.case, name)] for name in CONDITIONS if name != "device"}))
    return f"{candidate.place}: {text}" if candidate.place else text


def above(candidate: Candidate, most: float | None) -> str:
    """Reason why a candidate's time may be above so many ms on a device; "" where each whole band is within them."""
    if most is None:
        return ""
    parts = {}
    for device, time in candidate.times.items():
        if time.unknown:
            parts[device] = f"not known whether within {most:g} ms"
        elif time.high > most:
            parts[device] = f"{'' if time.low > most else 'perhaps '}above {most:g} ms"
    return "; ".join(f"{device}: {why}" if len(candidate.times) > 1 else why for device, why in parts.items())


def _column(mode: Mode) -> str:
    return quantity(f"memory_{mode}").column


def ordered(found: Sequence[Candidate], limit: int, device: str) -> tuple[list[Candidate], list[Candidate]]:
    """Fitting candidates by time on a device, and the others by excess; those without a time come last."""
    fits: list[Candidate] = []
    rest: list[Candidate] = []
    for each in found:
        is_within = each.memory is not None and not each.excess(limit) and not each.slow
        (fits if is_within else rest).append(each)
    fits.sort(key=lambda each: each.times[device].value if device in each.times else float("inf"))
    return fits, sorted(rest, key=lambda each: (each.memory is None, each.excess(limit)))


def is_tied(candidate: Candidate, fits: Sequence[Candidate], device: str) -> bool:
    """Return whether the prediction does not separate it from the fastest one that fits."""
    fastest = next((each.times[device] for each in fits if device in each.times), None)
    own = candidate.times.get(device)
    return bool(fastest and own and order(own, fastest) == 0)


def _safe_orders(found: Sequence[Candidate], limit: int, devices: Sequence[str]) -> Iterator[str]:
    """A sentence for each device: of how many pairs that fit the band of their ratio supports the order."""
    for device in devices:
        times = [each.times[device] for each in ordered(found, limit, device)[0] if device in each.times]
        pairs = list(combinations(times, 2))
        if pairs:
            safe = sum(order(*pair) != 0 for pair in pairs)
            every = len(pairs)
            yield f"On {device}, the predictions are precise enough to order {safe:,} of the {every:,} pairs that fit."


def batch_within(
    limit: int, candidate: Candidate, devices: Sequence[str], mode: Mode, measure: Measure, executor: Executor
) -> int:
    """The largest batch whose predicted peak on each device is within the limit; 0 if one image is not, or none is."""
    if candidate.memory is None:
        return 0
    cards = [*filter(None, map(card_of, devices))]
    asked = (candidate.case, mode, measure.memory_device, limit, cards)
    told = ask(executor, "largest_batch", int, *asked, timeout_s=MOST_BATCHES * measure.timeout_s).told
    return int(told[0]) if told else 0


def answer(
    found: Sequence[Candidate],
    limit: int,
    devices: Sequence[str],
    mode: Mode,
    owner: str = "",
    within_ms: float | None = None,
) -> Iterator[Table | str]:
    """Tables of fitting and other candidates under each of the conditions, and notes for the reader.

    `owner` is the device whose whole memory is the limit, if no other limit was given; `within_ms` is that of times.
    """
    whose = f" (the memory of {owner})" * bool(owner)
    times = "predicted ms [80 % band]" + ("" if within_ms is None else f", all of it within {within_ms:g} ms")
    for text in dict.fromkeys(map(conditions_of, found)):
        yield f"{mode} at {text}: predicted peak of at most {_mib(limit)} MiB{whose} on CUDA, {times}"
        yield from _by_kind([each for each in found if conditions_of(each) == text], limit, devices)
        yield (
            "=: not distinguishable from the fastest one that fits on this device: the band of the ratio of both times "
            "holds 1. It is narrower for blocks of the same kinds of kernels, so one without the mark may stand above "
            "one with it."
        )
        if any(time.unknown for each in found for time in each.times.values()):
            yield (
                f"{NOT_KNOWN}: no time is shown, for the reason next to it; its place in the order is predicted. What "
                "the kernels alone take is a lower bound."
            )
        yield from _safe_orders([each for each in found if conditions_of(each) == text], limit, devices)
    yield from _without_tf32(found, devices)
    yield from beside([_published_as(each) for each in found])[1]
    yield from dict.fromkeys(text for each in found for text in each.told)
    if any(sheet(each).backend == "cpu" for each in devices):
        yield "Peaks are those of CUDA; ctxbench memory MODULE --for cpu predicts that of a CPU."
    if owner:
        yield "A device's memory is that of its data sheet; ECC, the driver and CUDA's context take a part of it."
    if any(DTYPES[each.case.dtype].autocast for each in found):
        yield str(Note("autocast_cuda"))
    yield "Predicted for PyTorch of today; see docs/plugins/memory.md and docs/plugins/predict.md."


def _without_tf32(found: Sequence[Candidate], devices: Sequence[str]) -> Iterator[str]:
    """A sentence for each device on which PyTorch's own default is another than float32 throughout."""
    for device in devices:
        ratios = [each.defaults.get(device, 1.0) for each in found if device in each.times]
        if any(device in each.defaults for each in found):
            yield (
                f"On {device}, float32 is without TF32. PyTorch's default has TF32 in convolutions: such times are "
                f"{min(ratios):.2f} to {max(ratios):.2f} times these (--dtype tf32-convolutions)."
            )


def _by_kind(found: Sequence[Candidate], limit: int, devices: Sequence[str]) -> Iterator[Table]:
    """Tables of modules that let positions differ, the fastest on the first device first, and of other kinds."""
    others = [each for each in found if not each.mixes]
    for title, part in (
        ("", [each for each in found if each.mixes]),
        (
            "every position gets the same context from far away, or none",
            [each for each in others if not each.is_empty],
        ),
        ("without a module, for comparison", [each for each in others if each.is_empty]),
    ):
        if part:
            yield _table(part, limit, devices, title)


def _table(found: Sequence[Candidate], limit: int, devices: Sequence[str], title: str) -> Table:
    """Table of those that fit, with a mark on times tied with the fastest; then the others, with reasons."""
    fits, rest = ordered(found, limit, devices[0])
    has_batch = any(each.batch is not None for each in found)
    columns, _ = beside([_published_as(each) for each in (*fits, *rest)])
    rows: list[tuple[str | Cell, ...]] = []
    for each, *published in zip((*fits, *rest), *(cells for _, cells in columns), strict=True):
        times = {device: own.text() for device, own in each.times.items()}
        tied = [device for device in times if each in fits and is_tied(each, fits, device)]
        cells = [times.get(device, "") + " =" * (device in tied) for device in devices]
        over = each.excess(limit)
        why = f"{_mib(over)} MiB too much" if over else each.slow or each.reason or _not_known(each.times)
        memory = "" if each.memory is None else _mib(each.memory)
        name = f"{each.case.title} [{each.local}]" if each.local else each.case.title
        rows.append((name, memory, *cells, *[str(each.batch)] * has_batch, *published, why))
    numbers: dict[str, Origin] = dict.fromkeys(("MiB", *devices, *["largest batch"] * has_batch), "predicted")
    numbers |= {column.name: column.origin for column, _ in columns}
    return plain_table({"module": "label", **numbers, "": "text"}, rows, title)


def _not_known(times: Mapping[str, Number]) -> str:
    """Reasons to tell no time, with the devices that have each, unless these are all."""
    devices: dict[str, list[str]] = {}
    for device, time in times.items():
        devices.setdefault(time.why, []).append(device)
    parts = [(listed(own), why) for why, own in devices.items() if why]
    return "; ".join(f"{where}: {why}" if len(times) > 1 else why for where, why in parts)


def _published_as(candidate: Candidate) -> str:
    """The key of the module with its own hyper-parameters; "" with others."""
    case = candidate.case
    return case.module if {**case.defaults, **case.hparams} == case.defaults else ""


def _mib(size: int) -> str:
    return f"{size / 2**20:,.2f}"
