"""The comparison of a prediction with the CUDA allocator's history, on traces made by hand and from predictions."""

import csv
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ctxbench import registry
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import memory_cuda
from allocator_history import Block, UnmatchedBlock, compare, predicted_blocks

MIB = 2**20
Entry = dict[str, Any]


def alloc(address: int, size: int, filename: str = "", line: int = 0) -> Entry:
    frames = [{"filename": filename, "line": line, "name": "forward"}] if filename else []
    return {"action": "alloc", "addr": address, "size": size, "stream": 0, "frames": frames}


def free(address: int, size: int) -> Entry:
    return {"action": "free_requested", "addr": address, "size": size, "stream": 0, "frames": []}


def as_trace(profile: MemoryProfile) -> list[Entry]:
    """The history that the allocator would keep if the prediction were exact."""
    trace: list[Entry] = []
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
                trace.append(alloc(1000 + address, block.bytes))
                addresses[address] = 1000 + address
        trace += [alloc(10**6 + i, size) for i, size in enumerate(step.inner)]
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
    middle = next(i for i, entry in enumerate(trace) if entry["action"] == "alloc") + 1
    workspace = [alloc(7, 100 * MIB, "/home/me/net.py", 12), free(7, 100 * MIB)]
    found = compare(profile, trace[:middle] + workspace + trace[middle:])
    assert found.unmatched == [UnmatchedBlock("allocator", Block(100 * MIB, "allocator", "net.py:12"))]
    assert found.unmatched_bytes_at_peak == 100 * MIB
    assert found.peak_bytes == 100 * MIB + trace[middle - 1]["size"]


def test_a_block_that_was_predicted_and_not_made_is_named_with_its_operator(profile: MemoryProfile) -> None:
    copied = next(b for b in predicted_blocks(profile) if b.made_by.startswith("aten.silu_backward"))
    trace = as_trace(profile)
    position = predicted_blocks(profile).index(copied)
    entries = [i for i, entry in enumerate(trace) if entry["action"] == "alloc"]
    address = trace[entries[position]]["addr"]
    cut = [entry for i, entry in enumerate(trace) if i != entries[position] and entry["addr"] != address]
    found = compare(profile, cut)
    assert [(s.only_in, s.block.bytes) for s in found.unmatched] == [("prediction", copied.bytes)]


def test_the_order_inside_one_kernel_does_not_matter() -> None:
    x = torch.empty(1, 64, 256, device="meta")
    profile = predict_peak(
        nn.Sequential(nn.Linear(256, 256), nn.Softmax(dim=2)).to("meta"), x, mode="train"
    )  # its backward holds grad * output beside the result
    trace = as_trace(profile)
    assert compare(profile, trace).unmatched == []
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    swap = next(i for i in range(len(sizes) - 1) if sizes[i] != sizes[i + 1])
    entries = [i for i, entry in enumerate(trace) if entry["action"] == "alloc"]
    first, second = entries[swap], entries[swap + 1]
    trace[first], trace[second] = trace[second], trace[first]
    assert compare(profile, trace).unmatched == []


def test_requests_are_counted_in_whole_blocks() -> None:
    profile = MemoryProfile("Net", "infer", "cuda", 0, [], [], {}, {})
    found = compare(profile, [alloc(1, 1), alloc(2, 513), free(1, 1), alloc(3, 512)])
    assert found.peak_bytes == 512 + 1024
    assert [s.block.bytes for s in found.unmatched] == [1024, 512, 512]


def test_what_differs_is_written_and_shown(profile: MemoryProfile, tmp_path: Path) -> None:
    trace = [alloc(7, 64 * MIB, "/x/net.py", 3), *as_trace(profile)]
    comparison = compare(profile, trace)
    measured = profile.weights_bytes + comparison.peak_bytes
    result = memory_cuda.Traced("net", "train", profile.peak_bytes, measured, comparison, "float32")
    assert result.error == 0
    assert "predicted" in memory_cuda.show(result)
    assert "largest unmatched block: 64.0 MiB only in the allocator" in memory_cuda.show(result)
    memory_cuda.write_blocks(tmp_path / "blocks.csv", [result])
    with (tmp_path / "blocks.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["only_in"] == "allocator"
    assert int(row["bytes"]) == 64 * MIB
    assert row["where"] == "net.py:3"
