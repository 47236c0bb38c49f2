"""The comparison of a prediction with the blocks that the allocator made: events by hand, and from predictions."""

import csv
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from ctxbench import registry
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import memory_cuda
from allocator_history import Block, Event, UnmatchedBlock, compare, events_of, predicted_blocks

MIB = 2**20


def free(address: int, size: int) -> Event:
    return Event(address, -size)


def as_trace(profile: MemoryProfile) -> list[Event]:
    """The history that the allocator would keep if the prediction were exact."""
    trace: list[Event] = []
    addresses: dict[int, int] = {}
    for number, step in enumerate(profile.timeline):
        for address, block in enumerate(profile.allocations):
            if address in addresses and block.died is not None and block.died <= number:
                trace.append(free(addresses.pop(address), block.bytes))
        for address, block in enumerate(profile.allocations):
            if block.born == number and block.category != "weights":
                if block.reused:  # the block before it lives on under its address
                    before = next(a for a, b in enumerate(profile.allocations) if b.died == number and a in addresses)
                    addresses[address] = addresses.pop(before)
                    continue
                trace.append(Event(1000 + address, block.bytes))
                addresses[address] = 1000 + address
        trace += [Event(10**6 + i, size) for i, size in enumerate(step.inner)]
        trace += [free(10**6 + i, size) for i, size in enumerate(step.inner)]
    return trace


@pytest.fixture
def profile() -> MemoryProfile:
    module = nn.Sequential(nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.SiLU())
    return predict_peak(module.to("meta"), torch.empty(2, 64, 32, 32, device="meta"), mode="train")


@pytest.mark.parametrize("key", ["sa", "a2", "ham_nmf", "linear"])
def test_an_exact_prediction_has_no_unmatched_block(key: str) -> None:
    with torch.device("meta"):
        module = registry.get(key).build(32)
    profile = predict_peak(module, torch.empty(2, 32, 16, 16, device="meta"), mode="infer")
    found = compare(profile, as_trace(profile))
    assert found.unmatched == []
    assert found.unmatched_bytes_at_peak == 0
    assert found.peak_bytes == profile.peak_bytes - profile.weights_bytes


def test_a_workspace_is_the_allocators_alone_and_is_set_apart(profile: MemoryProfile) -> None:
    trace = as_trace(profile)
    middle = next(i for i, entry in enumerate(trace) if entry.bytes > 0) + 1
    operators = ("aten::conv2d", "aten::convolution", "aten::cudnn_convolution", "aten::empty")
    workspace = [Event(7, 100 * MIB, operators), free(7, 100 * MIB)]
    found = compare(profile, trace[:middle] + workspace + trace[middle:])
    assert found.unmatched == [
        UnmatchedBlock("allocator", Block(100 * MIB, "cudnn_convolution", "conv2d > convolution"))
    ]
    assert found.unmatched_bytes_at_peak == 100 * MIB
    assert found.peak_bytes == 100 * MIB + trace[middle - 1].bytes


def test_a_block_that_was_predicted_and_not_made_is_named_with_its_operator(profile: MemoryProfile) -> None:
    copied = next(b for b in predicted_blocks(profile) if b.made_by.startswith("aten.silu_backward"))
    trace = as_trace(profile)
    position = predicted_blocks(profile).index(copied)
    entries = [i for i, entry in enumerate(trace) if entry.bytes > 0]
    address = trace[entries[position]].address
    cut = [entry for i, entry in enumerate(trace) if i != entries[position] and entry.address != address]
    found = compare(profile, cut)
    assert [(s.only_in, s.block.bytes) for s in found.unmatched] == [("prediction", copied.bytes)]


def test_the_order_inside_one_kernel_does_not_matter() -> None:
    x = torch.empty(1, 64, 256, device="meta")
    profile = predict_peak(
        nn.Sequential(nn.Linear(256, 256), nn.Softmax(dim=2)).to("meta"), x, mode="train"
    )  # its backward holds grad * output beside the result
    trace = as_trace(profile)
    assert compare(profile, trace).unmatched == []
    sizes = [entry.bytes for entry in trace if entry.bytes > 0]
    swap = next(i for i in range(len(sizes) - 1) if sizes[i] != sizes[i + 1])
    entries = [i for i, entry in enumerate(trace) if entry.bytes > 0]
    first, second = entries[swap], entries[swap + 1]
    trace[first], trace[second] = trace[second], trace[first]
    assert compare(profile, trace).unmatched == []


def test_requests_are_counted_in_whole_blocks() -> None:
    profile = MemoryProfile("Net", "infer", "cuda", 0, [], [], {}, {})
    found = compare(profile, [Event(1, 1), Event(2, 513), free(1, 1), Event(3, 512)])
    assert found.peak_bytes == 512 + 1024
    assert [s.block.bytes for s in found.unmatched] == [1024, 512, 512]


def test_the_profilers_events_name_the_operators() -> None:
    module, x = nn.Sequential(nn.Linear(64, 64), nn.SiLU()), torch.randn(2, 32, 64)
    events = events_of(lambda: module(x).sum().backward(), torch.device("cpu"))
    made = [event for event in events if event.bytes > 0]
    assert [event.bytes for event in made if event.bytes == 4 * x.numel()]
    assert {"aten::addmm", "aten::silu", "aten::silu_backward"} <= {name for event in made for name in event.operators}


def test_the_blocks_that_differ_are_written(tmp_path: Path, plain_kernels: None) -> None:
    wanted = [each for each in memory_cuda.cases([(1, 32, 16, 16)], ["float32"]) if each.module in ("linear", "pool")]
    rows = memory_cuda.peaks(wanted, tmp_path / "peaks.csv", time.monotonic() + 1000, device="cpu")
    assert [(str(row.case), row.refused.split(":")[0]) for row in rows] == [
        ("linear infer float32 [1, 32, 16, 16]", ""),
        ("linear train float32 [1, 32, 16, 16]", ""),
        ("pool infer float32 [1, 32, 16, 16]", ""),
        ("pool train float32 [1, 32, 16, 16]", "UnpredictableError"),
    ]
    found = memory_cuda.write_blocks(rows[:1], tmp_path / "blocks.csv", time.monotonic() + 1000, device="cpu")
    assert found[0] == "blocks of 1 rows are in blocks.csv"
    with (tmp_path / "blocks.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert {row["only_in"] for row in written} <= {"prediction", "allocator"}
    assert {row["shape"] for row in written} == {"1x32x16x16"}
    with (tmp_path / "peaks.csv").open(newline="", encoding="utf-8") as file:
        (infer, *_) = csv.DictReader(file)
    assert int(infer["measured_bytes"]) == rows[0].measured_bytes
    assert memory_cuda.peaks(wanted, tmp_path / "late.csv", time.monotonic() - 1, device="cpu") == []
