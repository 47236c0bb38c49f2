"""Kills at random moments: of the command, of its fork servers, of the processes that measure; then resuming."""

import json
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from ctxbench.base.errors import UsageError
from ctxbench.results.run_folder import RunFolder

from .tally import Tally, marked, new_mark, run, start

SUITE = """
title = "killed"
modules = {modules}
metrics = ["params", "macs", "latency"]
[axes]
shape = [1, 8, 6, 5]
[measure]
processes = {processes}
sample_s = 0.1
warmup_s = 0.05
"""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TARGETS = ("command", "fork server", "child")
# A run without kills takes about as long as two imports of torch a round.
LONGEST_S, LONGEST_SHORT_S = 12.0, 6.0
KILLS, KILLS_SHORT = 60, 1
# Modules, and processes of each, besides the one that counts.
CASES: tuple[list[str], int] = (["linear", "sa", "acf"], 2)
CASES_SHORT: tuple[list[str], int] = (["linear"], 1)
# A folder whose run does not end by itself after so many kills is continued without one.
KILLS_A_RUN = 6
Rows = dict[tuple[str, int], list[str]]


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Kill runs of one suite and continue them, until enough kills were done."""
    tally = Tally()
    moments = random.Random(seed)
    modules, times = CASES_SHORT if short else CASES
    longest = LONGEST_SHORT_S if short else LONGEST_S
    suite = folder / "killed.toml"
    suite.write_text(SUITE.format(modules=json.dumps(modules), processes=times))
    wanted, number = (KILLS_SHORT if short else KILLS), 0
    while tally.tried < wanted:
        number += 1
        out = folder / f"run{number}"
        for _ in range(min(KILLS_A_RUN, wanted - tally.tried)):
            if killed_once(arguments(suite, out), out, folder, moments.uniform(0.0, longest), moments, tally):
                break
        what = f"the end of {out.name}"
        if not finished(out):
            run(arguments(suite, out), tally, what, folder)
        if (RunFolder.open(out).frame()["status"] != "ok").any():
            run(["resume", str(out), "--retry-failed"], tally, what, folder)
        tally.wrong += [f"{what}: {sentence}" for sentence in faults(out, modules, times)]
        print(f"{tally.tried} of {wanted}", file=sys.stderr, flush=True)
    return tally


def arguments(suite: Path, out: Path) -> list[str]:
    if (out / "run.json").exists():
        return ["resume", str(out)]
    return ["run", "--suite", str(suite), "--out", str(out)]


def killed_once(command: list[str], out: Path, folder: Path, at_s: float, moments: random.Random, tally: Tally) -> bool:
    """Run the command, kill something of it after `at_s` seconds, wait for its end; whether the run is finished."""
    mark = new_mark()
    process = start(command, mark, folder)
    with suppress(Exception):
        process.wait(at_s)
    target, number = moments.choice(TARGETS), moments.choice(SIGNALS)
    found = processes(mark, process.pid)[target]
    before = rows(out)
    if found:
        with suppress(psutil.Error):
            moments.choice(found).send_signal(number)
            tally.tried += 1
    what = f"{number.name} to the {target} of {out.name}"
    if target == "command" or not found:
        with suppress(Exception):
            process.wait(LONGEST_S)
    process.wait()
    tally.read(what, (folder / "output").read_text(errors="replace"))
    tally.look(what, mark)
    after = rows(out)
    tally.lost += [f"{what}: {key}" for key in before if after.get(key) != before[key]]
    return finished(out)


def processes(mark: str, command: int) -> dict[str, list[psutil.Process]]:
    """The processes of a run by what they do."""
    found: dict[str, list[psutil.Process]] = {name: [] for name in TARGETS}
    parents = {}
    for each in marked(mark):
        with suppress(psutil.Error):
            parents[each] = each.ppid()
    servers = {each.pid for each, parent in parents.items() if parent == command}
    for each in parents:
        kind = "command" if each.pid == command else "fork server" if each.pid in servers else "child"
        found[kind].append(each)
    return found


def rows(out: Path) -> Rows:
    """The processes that are on disk."""
    try:
        found = RunFolder.open(out).finished()
    except (UsageError, OSError):
        return {}
    return {(case, number): [*record.row().values()] for case, each in found.items() for number, record in each.items()}


def finished(out: Path) -> bool:
    try:
        return bool(RunFolder.open(out).meta["state"] == "finished")
    except (UsageError, OSError):
        return False


def faults(out: Path, modules: list[str], times: int) -> list[str]:
    """Faults of a run that was continued to its end."""
    folder = RunFolder.open(out)
    frame = folder.frame()
    sentences = []
    if frame["module"].tolist() != modules or frame["params"].isna().any():
        sentences.append(f"it has the rows {frame['module'].tolist()}")
    for _, row in frame.iterrows():
        if row["status"] != "ok" or not row["latency_infer_ms"] > 0 or not row["latency_train_ms"] > 0:
            sentences.append(f"{row['case']}: {row['status']} {row['message']}")
    counts = folder.samples().groupby(["case", "process", "mode"]).size()
    for case, each in folder.finished().items():
        if not set(range(times + 1)) <= each.keys():
            sentences.append(f"{case} has the processes {sorted(each)}")
        for number, record in each.items():
            if counts.get((case, number, "infer"), 0) != (record.get("latency_infer_samples") or 0):
                sentences.append(f"{case}, process {number}: the samples are not those of the row")
    return sentences
