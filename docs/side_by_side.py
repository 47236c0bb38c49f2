"""The tables of what other tools count of the same blocks, and of how fast public forms of them are."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
from lists import ROOT, markdown, source, stored_run

from ctxbench.base.mode import MODES, NOUNS
from ctxbench.report.published import with_published

RUN = ROOT / "results" / "other-tools"
TOOLS = ("fvcore", "calflops", "torchinfo")
MIB, NEAR = 2**20, 0.01


def other_source() -> str:
    """Versions, commit and day of the run."""
    evidence = json.loads((RUN / "evidence.json").read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {evidence[name]}" for name in ("torch", *TOOLS))
    return f"`results/other-tools`: {versions}; as of commit {evidence['commit'][:7]}, {evidence['date']}."


def other_tools_memory() -> str:
    """Number of peaks equal to those of the paper, and of the profiler: MemTracker's beside ours."""
    peaks = pd.read_csv(RUN / "memory.csv")
    paper = with_published(stored_run("table3-static")).set_index("module")
    rows = []
    for mode in reversed(MODES):
        own = peaks[(peaks["of"] == "table3") & (peaks["mode"] == mode)].set_index("block")
        printed = pd.to_numeric(paper.loc[own.index, f"memory_{mode}_2020_published"])
        shown = (own[["tracker", "ctxbench"]] / MIB).round()
        rows.append((f"Table 3, {NOUNS[mode]}", "the paper's MiB", *_agreement(shown, printed)))
    for mode in reversed(MODES):
        own = peaks[(peaks["of"] == "cpu") & (peaks["mode"] == mode)].set_index("block")
        rows.append((f"all blocks, CPU, {NOUNS[mode]}", "the profiler's bytes", *_agreement(own, own["measured"])))
    agreement = ("MemTracker equal", "within 1 %", "furthest", "ctxbench equal")
    headings = dict.fromkeys(("peaks of", "equal to", *agreement), "text")
    return f"{markdown(headings, rows)}\n\n{other_source()}"


def _agreement(own: pd.DataFrame, truth: "pd.Series[float]") -> Sequence[str]:
    """Of MemTracker: how many are equal, how many near, the furthest as a share of the truth; equal ones of ours."""
    share = own["tracker"] / truth
    furthest = (share - 1).abs().idxmax()
    counts = (own["tracker"] == truth, (share - 1).abs() <= NEAR, own["ctxbench"] == truth)
    equal, near, ours = (f"{int(count.sum())} of {len(truth)}" for count in counts)
    return equal, near, "none" if share[furthest] == 1 else f"`{furthest}`: {share[furthest]:.0%} of it", ours


def other_tools_counts() -> str:
    """For each counter: how many parameter counts and MACs of the blocks are right, and how far off the others are."""
    counts = pd.read_csv(RUN / "counts.csv").set_index("block")
    rows = []
    for tool in TOOLS:
        share = counts[f"{tool}_macs"] / counts["macs_matmul"]
        conventions = [counts[f"{tool}_macs"] == counts[name] for name in ("macs_matmul", "macs")]
        equal, low, high = conventions[0] | conventions[1], share.idxmin(), share.idxmax()
        right = (counts[f"{tool}_params"] == counts["params"]).sum()
        rows.append((
            f"`{tool}`", f"{right} of {len(counts)}", f"{equal.sum()} of {len(counts)}",
            _beyond(share[(share < 1) & ~equal], low), _beyond(share[(share > 1) & ~equal], high),
        ))  # fmt: skip
    headings = {"tool": "label", "params equal": "text", "MACs equal": "text", "below": "text", "above": "text"}
    return f"{markdown(headings, rows)}\n\n{other_source()}"


def _beyond(share: "pd.Series[float]", furthest: str) -> str:
    return f"{len(share)}, to {share[furthest]:.0%} (`{furthest}`)" if len(share) else "0"


# Kinds of cases by which rules were corrected.
CORRECTED_BY = ("block", "small module")


def _conventions() -> pd.DataFrame:
    """Numbers that packages printed, beside ctxbench's conventions, and whether they are equal."""
    found = pd.read_csv(ROOT / "results" / "counters" / "conventions.csv", keep_default_na=False, na_values=[""])
    found["equal"] = found["printed"] == found["convention"]
    return found


def other_tools_conventions() -> str:
    """For each counter: for how many cases ctxbench's convention of it gives the number that the package prints."""
    found = _conventions()
    rows = []
    for name, own in found.groupby("tool", sort=False):
        ran = own[own["printed"].notna()]
        corrected, is_network = ran["kind"].isin(CORRECTED_BY), ran["kind"].str.startswith("network")
        explained = ran["why"].notna()
        rows.append((
            f"`{name}`", f"{own['package'].iloc[0]} {own['version'].iloc[0]}",
            *(_share(ran[each]["equal"]) for each in (corrected, ~corrected & ~is_network, is_network)),
            str(explained.sum()), str((~ran["equal"] & ~explained).sum()), str(len(own) - len(ran)),
        ))  # fmt: skip
    names = ("package", "equal", "others", "networks", "explained", "not explained", "fails")
    headings = dict.fromkeys(names, "text")
    total = f"{found['equal'].sum():,} of {len(found):,} numbers are equal, on {found['case'].nunique()} cases"
    return f"{markdown({'counter': 'label', **headings}, rows)}\n\n{total}: {source('counters')}."


def _share(is_so: "pd.Series[bool]") -> str:
    return f"{is_so.sum()} of {len(is_so)}"


def other_tools_differences() -> str:
    """For each counter and reason: the cases whose number its convention does not give, and those that it fails on."""
    found = _conventions()
    fails, differs = found["printed"].isna(), found["printed"].notna() & ~found["equal"]
    found.loc[fails, "why"] = "fails: " + found["error"].str.rstrip(": ")
    rows = []
    for (name, why), own in (
        found[fails | differs].fillna({"why": "not explained"}).groupby(["tool", "why"], sort=False)
    ):
        rows.append((f"`{name}`", why, "; ".join(map(_difference, own.itertuples()))))
    return markdown({"counter": "label", "why": "text", "cases": "text"}, rows)


def _difference(row: Any) -> str:
    return row.case if pd.isna(row.printed) else f"{row.case} ({row.printed:,.0f}, not {row.convention:,.0f})"


def public_forms() -> str:
    """Times of blocks as a share of their public forms', from `research/public_forms.py`, and what they come to."""
    folder = ROOT / "results" / "public-forms"
    frame = pd.read_csv(folder / "speed.csv")
    evidence = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    slower, faster = (frame["low"] > 1).sum(), (frame["high"] < 1).sum()
    worst = frame.loc[frame["ratio"].idxmax()]
    lead = (
        f"Of {len(frame)} times {faster} are lower than the public form's and {slower} higher, by the intervals; "
        f"the highest ratio is {worst['ratio']:.2f} (`{worst['block']}`, {NOUNS[worst['mode']]}, {worst['shape']})."
    )
    frame["cell"] = [f"{row.ratio:.2f} [{row.low:.2f}, {row.high:.2f}]" for row in frame.itertuples()]
    frame["at"] = [f"{shape}, {NOUNS[mode]}" for shape, mode in zip(frame["shape"], frame["mode"], strict=True)]
    places = dict.fromkeys(frame["at"])
    rows = [
        (f"`{block}`", f"`{public}`, {package}", *own.set_index("at")["cell"].reindex(places))
        for (block, public, package), own in frame.groupby(["block", "public", "package"], sort=False)
    ]
    headings = {"block": "label", "public form": "text", **dict.fromkeys(places, "measured")}
    where = f"`results/public-forms`: as of commit {evidence['commit'][:7]}, {evidence['date']}."
    return f"{lead}\n\n{markdown(headings, rows)}\n\n{where}"
