"""The lines under a table: whose numbers, on what, under which conventions."""

from collections.abc import Mapping, Sequence

from .conventions import LATENCY, MACS, MEMORY, PARAMS, PREDICTED_FOR, RATES
from .numbers import Unit
from .runs import CONDITIONS, RunData
from .table import Column


def caption_lines(
    run: RunData, columns: Sequence[Column], units: Mapping[str, Unit], hidden: int = 0
) -> tuple[str, ...]:
    """What a reader must know to use the numbers; `hidden` rows are in the CSV only."""
    keys = {column.key for column in columns}
    lines = []
    if any(column.origin == "published" for column in columns):
        device = run.published.get("device")
        lines.append(
            f"paper: {run.definition.get('source', 'published numbers')}"
            + (f", on {device}; times on different devices are not compared." if device else ".")
        )
    elif run.published.get("rows"):
        lines.append("No published number is shown: none belongs to these inputs, dtypes and hyper-parameters.")
    lines.append(f"here: {conditions(run)}.")
    lines += _conventions(run, keys, units)
    if run.meta.get("state") not in (None, "finished"):
        lines.append(f"The run is not finished (state: {run.meta['state']}); rows are missing.")
    failed = int((run.frame["status"] != "ok").sum())
    if failed:
        lines.append(f"{failed} of {len(run.frame)} rows failed; their status and message are shown.")
    if hidden:
        lines.append(f"{hidden} more rows are in the CSV table.")
    return tuple(lines)


def conditions(run: RunData) -> str:
    """Device, software, input, date and commit in one phrase; what differs between rows stands in the rows."""
    differing = run.differing()
    environment = run.environment
    packages = environment.get("packages") or {}
    parts = [", ".join(run.device_name(device) for device in run.devices())]
    parts.append(f"torch {packages.get('torch') or 'unknown'}")
    if environment.get("torch_threads") and "cpu" in run.devices() and "threads" not in differing:
        chosen = run.frame["threads"].dropna()
        count = int(chosen.iloc[0] if len(chosen) else environment["torch_threads"])
        parts.append(f"{count} thread{'s' * (count != 1)}")
    for name in CONDITIONS:
        if name in differing or run.frame.empty or name in ("device", "threads"):
            continue
        value = str(run.frame[name].iloc[0])
        if name == "shape":
            parts.append(f"input [{value.replace('x', ', ')}]")
        elif value not in ("contiguous", "eager"):
            parts.append(value)
    if environment.get("time"):
        parts.append(str(environment["time"])[:10])
    if environment.get("commit"):
        commit, plus, changes = str(environment["commit"]).partition("+")
        parts.append(f"commit {commit[:10]}{plus}{changes}")
    return ", ".join(parts)


def _conventions(run: RunData, keys: set[str], units: Mapping[str, Unit]) -> list[str]:
    lines = []
    for key, sentence in (("params", PARAMS), ("macs", MACS.get(str(run.meta.get("counter")), MACS["ctxbench"]))):
        if key in keys:
            lines.append(f"{sentence}{f'; {units[key]}' if units[key].symbol else ''}.")
    if keys & {"memory_train", "memory_infer"}:
        targets = run.frame["memory_predicted_for"].dropna().unique()
        target = ", ".join(PREDICTED_FOR.get(name, name) for name in targets)
        lines.append(f"Memory: peak, MiB = 2^20 bytes; predicted: for {target or 'CUDA'}, without a device; {MEMORY}.")
    elif keys & {"memory_train_measured", "memory_infer_measured"}:
        lines.append(f"Memory: measured peak, MiB = 2^20 bytes; {MEMORY}.")
    if keys & {"latency_train", "latency_infer"}:
        lines.append(f"{LATENCY}.")
    if "achieved" in keys:
        lines.append(f"{RATES}.")
    if keys & {"params", "macs", "memory_train", "memory_infer", "latency_train", "latency_infer"}:
        lines.append("Bold: the smallest under the same conditions, and what cannot be told apart from it.")
    return lines
