"""A profile for people: its sentences and its CSV."""

from ctxbench.base.mode import NOUNS, Mode
from ctxbench.base.number import significant
from ctxbench.plugins.profile.profile import BYS, Lines, Pass, Profile
from ctxbench.table.numbers import Numbers

# The probability of an interval of measured times.
INTERVAL = 0.95
# Lines of Python that are told, at most, and the least share of the pass of one.
LINES, LEAST_SHARE = 5, 0.02


def headline(profile: Profile, mode: Mode) -> str:
    """Time of a pass and its device; what disturbed it."""
    taken = profile.passes[mode]
    how = f"on {profile.device}" if taken.is_measured else f"predicted for {profile.device}, not measured"
    time = taken.time
    doubt = f"\n{time.reason_not_comparable.capitalize()}: these times, and the order of the rows, are doubtful."
    told = time.told(f"ms [{_band(taken)}]")
    return f"{profile.about}, {NOUNS[mode]}, {how}: {told}{doubt * time.disturbed}"


def _band(taken: Pass) -> str:
    """Meaning of the ends by a pass's time: where neighbouring passes are alike, few of them justify no interval."""
    if taken.is_measured and taken.confidence < INTERVAL:
        return f"the smallest and the largest of {len(taken.pass_ms)} passes"
    return f"{100 * taken.confidence:.0f} % {'band' if not taken.is_measured else 'interval'}"


def sentences(taken: Pass) -> list[str]:
    """Sentences on the measurement of a pass, its possible savings, and the unknown."""
    counted = f"*: counted in a pass on numbers, because {taken.on_data}. What is kept and the peak are not known."
    alone = f"All rows share what the kernels alone take{', a lower bound of the pass' * bool(taken.kernels)}."
    return [
        *_measured(taken),
        *[alone] * bool(taken.unknown),
        *_most(taken),
        *_python(taken),
        *taken.advice,
        *[counted] * bool(taken.on_data),
        *taken.notes,
    ]


def _measured(taken: Pass) -> list[str]:
    if not taken.is_measured:
        return []
    doubt = "?: the row's time differs between these passes by more than itself, so its share is not known."
    return [
        f"All rows are of the same {len(taken.quiet)} passes with PyTorch's profiler, the quicker half of "
        f"{len(taken.profiled_ms)}: sums of medians of calls. ± is half of what the middle half of these passes differ "
        f"by. With the profiler a pass takes {taken.overhead.text()} times as long; the first line is without it.",
        *[doubt] * any(not part.is_known for part in taken.parts("line")),
    ]


def _most(taken: Pass) -> list[str]:
    """The line that could save most; the gradients of the weights, which have no line, nobody can change."""
    lines = (part for part in taken.parts("line") if part.line is not None)
    most = max(lines, key=lambda part: part.saved_ms, default=None)
    if most is None or not most.saved_ms or not most.is_known or not taken.has_times:
        return []
    times = f"{significant(most.saved_ms)} of its {significant(most.ms.value)} ms"
    return [f"Most could be saved at {most.name}: {times} at most."]


def _python(taken: Pass) -> list[str]:
    """Lines of Python that take time outside of operators, or in a backward pass, where that is much of the pass."""
    shown = [each for each in taken.python if each.ms >= LEAST_SHARE * taken.time.value][:LINES]
    return [
        f"{'Outside of operators' if each.phase == 'forward' else 'In the backward pass'}, {each.line} in "
        f"{each.function} takes {significant(each.ms)} ms{', operators included' * (each.phase == 'backward')} "
        f"({each.ms / taken.time.value:.0%} of a pass without the profiler, sampled)."
        for each in shown
    ]


def roofline(profile: Profile) -> str:
    """Roof of the device, and the most that a row could save."""
    taken = next(iter(profile.passes.values()))
    rates = (taken.roof.flops / 1e9, taken.roof.bandwidth / 1e9, taken.roof.call_s * 1e6)
    flops, bandwidth, call = map(significant, rates)
    what = "a large product reaches {} GFLOP/s, an addition {} GB/s" if taken.is_measured else "{} GFLOP/s, {} GB/s"
    return (
        f"{profile.device}: {what.format(flops, bandwidth)}, and a call that computes nothing takes {call} us. What a "
        "row saves at most is its time without that of its arithmetic, or of its transfers if that is longer, at these "
        "rates: copies and calls count as nothing."
    )


def as_csv(profile: Profile, lines: Lines) -> str:
    """All rows: the column `by` says what a row is of, `name` which one."""
    rows = [(by, row) for by in BYS for row in profile.rows(by, lines)]
    return Numbers.of_rows(
        [{"by": by} | {"name" if key == by else key: value for key, value in row.items()} for by, row in rows]
    ).csv
