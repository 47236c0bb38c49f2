"""Run folders with invented numbers, for the report's tests: written as the engine writes them, no torch, no clock."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ctxbench.base import disk
from ctxbench.base.statistics import summarise
from ctxbench.metrics.latency import Latency, combine
from ctxbench.model.messages import Sample, TimelineStep
from ctxbench.model.record import Record
from ctxbench.results.csv_file import csv_line
from ctxbench.results.run_folder import RunFolder
from ctxbench.table.table import Cell, Table

MIB = 2**20
PRINTED = {
    "sa": {"params": "1.00", "macs": "292", "memory_train": "5253", "memory_infer": "2148",
           "latency_train": "242.0", "latency_infer": "82.2"},
    "da": {"params": "4.82", "macs": "79.5", "memory_train": "2395", "memory_infer": "2203",
           "latency_train": "72.6", "latency_infer": "64.4"},
    "ham_nmf": {"params": "0.50", "macs": "17.6", "memory_train": "202", "memory_infer": "98",
                "latency_train": "15.6", "latency_infer": "7.7"},
}  # fmt: skip


def published(rows: Mapping[str, Any], **about: Any) -> dict[str, Any]:
    """A published table with these rows, as `run.json` has it."""
    source = {"title": "A paper", "authors": "A. Uthor", "venue": "ICLR", "year": 2021, "seen": "read"}
    return {**source, "rows": rows, **about}


PUBLISHED = published(
    {
        "sa": {"printed": PRINTED["sa"]},
        "da": {"printed": PRINTED["da"], "notes": {"macs": "79.5G cannot be."}},
        "ham_nmf": {"printed": PRINTED["ham_nmf"]},
    },
    device="NVIDIA TITAN Xp",
    units={"params": "M = 2^20", "macs": "G = 10^9"},
    shape=[1, 512, 128, 128],
)
# module: params, macs, MiB in training, MiB in inference, ms in training, ms in inference
FACTS = {
    "sa": (1_050_624, 292_057_776_128, 5253, 2148, 24_000.0, 8_200.0),
    "da": (5_048_962, 245_920_432_128, 5355, 2203, 18_000.0, 6_400.0),
    "linear": (800_000, 13_000_000_000, 300, 150, 800.0, 400.0),
    "ham_nmf": (524_288, 17_600_000_000, 202, 98, 715.0, 307.0),
}
FAMILIES = {"ham_nmf": "matrix decomposition", "linear": "linear attention"}
ENVIRONMENT = {
    "time": "2026-11-21T01:15:38+00:00",
    "python": "3.11.7",
    "cpu": "Test CPU",
    "cpu_usable": 2,
    "packages": {"torch": "2.13.0"},
    "commit": "0123456789abcdef+changes",
    "torch_threads": 2,
    "gpus": [{"name": "Test GPU", "memory_bytes": 1, "capability": "9.0"}],
}


class Timed(Record):
    """A record with what each of its processes measured, by number."""

    process_values: Mapping[int, Mapping[str, Any]] = {}


def definition(**changes: Any) -> dict[str, Any]:
    """The part of `run.json` that a suite fills."""
    measure = {"target": 0.02, "sample_s": 8.0}
    return {"title": "Table 3", "source": "A paper", "measure": measure, "published": PUBLISHED, **changes}


def new_run(path: Path, **meta: Any) -> RunFolder:
    """An empty, finished run of `table3`."""
    metrics = ["params", "macs", "memory", "latency"]
    facts = {"suite": "table3", "state": "finished", "command": "ctxbench run", "counter": "ctxbench"}
    given = {**facts, "metrics": metrics, "definition": definition(), "environment": ENVIRONMENT, **meta}
    return RunFolder.create(path, given)


def record(module: str, device: str = "cpu", shape: Sequence[int] = (1, 512, 128, 128), **values: Any) -> Record:
    """A record with the static figures of FACTS."""
    params, macs, train, infer, *_ = FACTS.get(module, FACTS["linear"])
    batch, channels, height, width = shape
    found = Timed(
        case=f"{module} {'x'.join(map(str, shape))} {device} {values.get('hparams', '')}",
        module=module, title=f"{module.upper()} block", family=FAMILIES.get(module, "attention"), reference="m:C",
        hparams="{}", changed=" ".join(json.loads(values.get("hparams", "{}"))), batch=batch, channels=channels,
        height=height, width=width, dtype="float32", memory_format="contiguous", execution="eager", threads=None,
        device=device,
    )  # fmt: skip
    counts = {"params": params, "macs": macs, "macs_counter": "ctxbench", "macs_matmul": macs, "macs_formula": macs}
    predictions = {"memory_train_predicted_bytes": train * MIB, "memory_infer_predicted_bytes": infer * MIB}
    found.take({**counts, **predictions, "memory_predicted_for": "cuda", **values})
    return found


def timed(
    found: Record,
    streams: Mapping[str, Sequence[float]],
    stop: str = "interval",
    processes: int = 5,
    others_share: float = 0.0,
) -> dict[int, dict[str, list[Sample]]]:
    """Fill the latency columns from samples in milliseconds, a part for each process; return the processes' samples."""
    samples: dict[int, dict[str, list[Sample]]] = {}
    values: dict[int, dict[str, Any]] = {}
    for mode, ms in streams.items():
        for number, part in enumerate(np.array_split(ms, min(processes, len(ms))), 1):
            stream = [Sample(float(at), 1, float(each)) for at, each in zip(np.cumsum(part) / 1e3, part, strict=True)]
            samples.setdefault(number, {})[mode] = stream
            values.setdefault(number, {}).update(Latency(stream, summarise(part), stop).columns(mode))
    combined = combine([*values.values()]).items()
    rounds = " ".join(map(str, values))
    found.take({name: value for name, value in combined if not name.endswith("autocorrelation")})
    found.take({"processes": len(values), "rounds": rounds, "others_share": others_share})
    assert isinstance(found, Timed)
    found.process_values = values
    return samples


def medians(found: Record, infer: Sequence[float], others_share: float = 0.0) -> Record:
    """The record with these medians of its processes in inference, in milliseconds."""
    timed(found, {"infer": infer}, processes=len(infer), others_share=others_share)
    return found


def add(folder: RunFolder, found: Record, samples: Mapping[int, Mapping[str, Sequence[Sample]]] | None = None) -> None:
    """Put a record into a run folder, its processes and their samples."""
    for number, values in getattr(found, "process_values", {}).items():
        process = replace(found, values=values)
        folder.append(number, process, (samples or {}).get(number, {}))
    disk.write(folder.path / "records.csv", csv_line(found.row().values()), "a")


def cells(table: Table, key: str) -> list[Cell]:
    """The cells of a column."""
    (place,) = [i for i, column in enumerate(table.columns) if column.key == key]
    return [row.cells[place] for row in table.rows]


def texts(table: Table, key: str) -> list[str]:
    return [each.text for each in cells(table, key)]


def cell(table: Table, module: str, key: str) -> Cell:
    return next(each for row, each in zip(table.rows, cells(table, key), strict=True) if row.module == module)


def notes_of(table: Table, *found: Cell) -> list[str]:
    return [table.notes[number - 1] for each in found for number in each.notes]


def stream(median: float, count: int = 31, spread: float = 0.01, seed: int = 0) -> list[float]:
    """Independent samples around a median."""
    factors = np.random.default_rng(seed).normal(1, spread, count)
    return [float(median * factor) for factor in factors]


def table3_run(path: Path, device: str = "cpu", scale: float = 1.0, failed: Sequence[str] = (), seed: int = 0) -> Path:
    """A run of FACTS with latencies times `scale`; the modules in `failed` ended out of memory."""
    folder = new_run(path)
    for place, (module, (*_, train, infer)) in enumerate(FACTS.items()):
        row = record(module, device)
        if module in failed:
            row.status, row.message = "oom", "out of memory: 1 GiB (sa.py, line 30, in forward)"
            add(folder, row)
            continue
        row.take(
            {f"memory_{mode}_bytes": int(FACTS[module][at] * MIB * 1.1) for mode, at in (("train", 2), ("infer", 3))}
        )
        streams = {
            "train": stream(train * scale, seed=seed + place),
            "infer": stream(infer * scale, seed=seed + place + 9),
        }
        add(folder, row, timed(row, streams))
    return path


def without_key(path: Path, key: str) -> None:
    """Take a key, such as `environment.gpus`, out of the `run.json` of `table3_run`, which then has all others."""
    meta = json.loads((path / "run.json").read_text(encoding="utf-8"))
    meta = {"static": False, "force": False, **meta, "environment": {"driver": None, **meta["environment"]}}
    *parents, last = key.split(".")
    part = meta
    for name in parents:
        part = part[name]
    del part[last]
    (path / "run.json").write_text(json.dumps(meta), encoding="utf-8")


def with_timeline(path: Path, modules: Sequence[str] = tuple(FACTS)) -> Path:
    """The run with a course of memory for these modules: up to the peaks of FACTS, in forward and backward pass."""
    folder = RunFolder.open(path)
    for module in modules:
        train, infer = FACTS[module][2:4]
        forward = [
            TimelineStep(0, "forward", "aten.bmm.default", infer * MIB // 2),
            TimelineStep(3, "forward", "aten.add", infer * MIB),
        ]
        backward = [
            TimelineStep(4, "backward", "aten.bmm.default", train * MIB),
            TimelineStep(7, "backward", "aten.sum", infer * MIB),
        ]
        folder.append(0, record(module), {}, {"infer": forward, "train": [*forward, *backward]})
    return path


def scaling_run(path: Path, exponents: Mapping[str, float], sizes: Sequence[int] = (16, 32, 64, 128)) -> Path:
    """A run whose inference time and MACs are exact powers of H x W."""
    folder = new_run(path, definition=definition(published=None))
    for module, exponent in exponents.items():
        for size in sizes:
            cost = (size * size) ** exponent
            row = record(module, shape=(1, 64, size, size), macs=int(cost), latency_infer_ms=cost / 1e3)
            add(folder, row)
    return path
