"""Hostile modules, each between modules that harm nobody: what must come of it, and of its neighbours."""

from pathlib import Path

import pandas as pd

import ctxbench

from .tally import Tally, run

HOSTILE = Path(__file__).with_name("hostile.py")
INNOCENT = "linear"
# Status, and a part of the message or of a warning.
EXPECTED = {
    "Leaves": ("crashed", "the process ended in first_infer with exit code 0"),
    "LeavesLater": ("crashed", "the process ended in latency_"),
    "StopsTheClock": ("ok", "the module monkey-patches time.monotonic, time.monotonic_ns, time.perf_counter"),
    "Remembers": ("error", "StaleOutput: after the input has changed in its place"),
    "RemembersTheLast": ("error", "StaleOutput: after the input has changed in its place"),
    "WritesEverywhere": ("ok", "the module wrote into the pipe of the measurement, which was ignored"),
    "Floods": ("ok", "the module wrote into the pipe of the measurement, which was ignored"),
    "Forges": ("crashed", "a value for 'latency_infre_ms', which is no column of a metric"),
    "ForgesAStatus": ("crashed", "a failure with the unknown status 'fine'"),
    "ForgesText": ("crashed", "'fast' for latency_infer_ms, which is no finite number"),
    "ForgesAStream": ("crashed", "samples of an unknown stream '../../x'"),
    "ForgesNothingKnown": ("crashed", "it last printed: no known message"),
    "ForgesTheEnd": ("crashed", "the process ended in first_infer with exit code 0"),
    "LeavesAProcess": ("ok", "the module left processes running, which were ended: sleep"),
    "LeavesADaemon": ("ok", "the module left processes running, which were ended: python"),
    "StopsItself": ("timeout", "still in first_infer after"),
    "DiesOfARealTimeSignal": ("crashed", "killed in first_infer by signal 40"),
    "KillsItsParentGently": ("crashed", "killed in first_infer by SIGTERM"),
    "SaysLongThings": ("error", "ValueError: xxxxxxxx"),
    "SaysSurrogates": ("error", "ValueError: "),
    "Exits": ("error", "SystemExit: 0 (hostile.py, line "),
    "ClosesEverything": ("crashed", "the process ended in first_infer with exit code 1"),
}
# These take seconds each, or a minute.
SLOW = ("StopsItself", "KillsItsParentGently")
SUITE = """
title = "hostile modules"
modules = [{modules}]
metrics = ["params", "latency"]
[axes]
shape = [1, 8, 6, 5]
batch = {batches}
[measure]
processes = {processes}
sample_s = 0.02
warmup_s = 0
timeout_s = 60
"""
# A pass of these works for 10 ms.
LEAST_MS = {"StopsTheClock": 10.0}


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Measure all hostile modules in one run, between innocent ones."""
    tally = Tally()
    names = [name for name in EXPECTED if not (short and name in SLOW)]
    modules = [f'"{HOSTILE}:{name}"' for name in names]
    suite = folder / "hostile.toml"
    suite.write_text(
        SUITE.format(
            modules=", ".join([f'"{INNOCENT}"', *modules, '"acf"']),
            batches=[1] if short else [1, 2, 3],
            processes=1 if short else 3,
        )
    )
    code = run(["run", "--suite", str(suite), "--out", str(folder / "run")], tally, "modules", folder)
    tally.tried = len(names) * (1 if short else 3)
    if code != 1:
        tally.wrong.append(f"the exit code is {code}, where modules failed")
        return tally
    frame = ctxbench.load(folder / "run").frame
    for name in names:
        rows = frame[frame["module"] == name]
        if len(rows) != (1 if short else 3):
            tally.lost.append(f"{name} has {len(rows)} rows")
        tally.wrong += [sentence for _, row in rows.iterrows() if (sentence := difference(name, row))]
    for _, row in frame[~frame["module"].isin(names)].iterrows():
        if row["status"] != "ok" or not row["params"] > 0 or not row["latency_train_ms"] > 0 or blames(row):
            tally.wrong.append(
                f"{row['case']}, which harms nobody: {row['status']} {row['message']} {[*map(str, row['notes'])]}"
            )
    return tally


def blames(row: pd.Series) -> bool:
    """Return whether a row's warnings say that its module did something."""
    return any("the module" in str(note) for note in row["notes"])


def difference(name: str, row: pd.Series) -> str:
    """Difference from the expected row of a hostile module; empty if none."""
    status, sentence = EXPECTED[name]
    said = " ".join([row["message"], *map(str, row["notes"])])
    if row["status"] != status or sentence not in said:
        return f"{name}: {row['status']}, not {status}: {said}"
    if row["params"] != 8:
        return f"{name}: {row['params']} params, not 8"
    if status == "ok" and not row["latency_infer_ms"] >= LEAST_MS.get(name, 1e-4):
        return f"{name}: a pass of {row['latency_infer_ms']} ms"
    return ""
