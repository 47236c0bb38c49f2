"""A profile for people: its sentences and its CSV."""

from ctxbench.base.mode import NOUNS, Mode
from ctxbench.base.number import significant
from ctxbench.plugins.profile.profile import BYS, Lines, Pass, Profile

# The probability of an interval of measured times.
INTERVAL = 0.95


def headline(profile: Profile, mode: Mode) -> str:
    """Time of a pass and its device."""
    taken = profile.passes[mode]
    how = f"on {profile.device}" if taken.is_measured else f"predicted for {profile.device}, not measured"
    return f"{profile.about}, {NOUNS[mode]}, {how}: {taken.time.text()} ms [{_band(taken)}]"


def _band(taken: Pass) -> str:
    """Meaning of the ends by a pass's time: where neighbouring passes are alike, few of them justify no interval."""
    if taken.is_measured and taken.confidence < INTERVAL:
        return f"the smallest and the largest of {len(taken.pass_ms)} passes"
    return f"{100 * taken.confidence:.0f} % {'band' if not taken.is_measured else 'interval'}"


def sentences(taken: Pass) -> list[str]:
    """Sentences on the measurement of a pass, its possible savings, and the unknown."""
    return [*_measured(taken), *taken.advice, *taken.notes]


def _measured(taken: Pass) -> list[str]:
    if not taken.is_measured:
        return []
    return [
        f"Operators account for {taken.accounted.over(0.01).text()} % of the pass. {len(taken.pass_ms)} passes without "
        f"and as many with PyTorch's profiler, in turns: with it a pass takes {taken.overhead.text()} times as long."
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
    import pandas as pd

    frames = [profile.frame(by, lines).rename(columns={by: "name"}) for by in BYS]
    return str(pd.concat(frames, keys=BYS, names=["by"]).reset_index(level=0).to_csv(index=False, lineterminator="\n"))
