"""CUDA's caching allocator without CUDA: each rule by hand, and peaks of a GPU that no sum of blocks explains."""

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ctxbench import registry
from ctxbench.base.mode import Mode
from ctxbench.plugins.memory.allocator import LARGE_SEGMENT, MIB, VARIABLES, CachingAllocator
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

RUN = Path(__file__).parents[3] / "results" / "gpu-h200-2" / "peaks.csv.gz"


@pytest.mark.parametrize(
    ("request_bytes", "allocated", "reserved"),
    [
        (0, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # the rest is one MiB, and is not split off
        (19 * MIB, 20 * MIB, 20 * MIB),
    ],
)
def test_one_request(request_bytes: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    allocator.malloc(request_bytes)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)


def test_a_rest_is_split_off_above_one_mib() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MIB))
    whole, split = allocator.malloc(29 * MIB), CachingAllocator()
    assert (whole.bytes, allocator.reserved) == (30 * MIB, 30 * MIB)
    split.free(split.malloc(30 * MIB))
    assert (split.malloc(29 * MIB - 512).bytes, split.reserved) == (29 * MIB - 512, 30 * MIB)


def test_the_smallest_free_block_is_taken_and_neighbours_are_joined() -> None:
    allocator = CachingAllocator()
    first, second, third = (allocator.malloc(size * MIB) for size in (4, 6, 8))
    assert (allocator.reserved, third.segment) == (20 * MIB, first.segment)
    allocator.free(first)
    assert allocator.malloc(3 * MIB) == first  # whole: one MiB is left
    allocator.free(first)
    allocator.free(second)
    assert allocator.malloc(9 * MIB).bytes == 10 * MIB
    assert (allocator.allocated, allocator.reserved) == (18 * MIB, 20 * MIB)


def test_an_emptied_cache_keeps_the_segments_in_use() -> None:
    allocator = CachingAllocator()
    kept, gone = allocator.malloc(12 * MIB), allocator.malloc(40 * MIB)
    allocator.free(gone)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.allocated_peak) == (12 * MIB, 12 * MIB)
    allocator.free(kept)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.reserved_peak) == (0, 0)


def test_blocks_above_the_largest_split_are_whole_and_for_large_requests_alone() -> None:
    allocator = CachingAllocator(max_split=30 * MIB)
    allocator.free(allocator.malloc(40 * MIB))
    assert (allocator.malloc(4 * MIB).bytes, allocator.reserved) == (4 * MIB, 60 * MIB)
    assert (allocator.malloc(35 * MIB).bytes, allocator.reserved) == (40 * MIB, 60 * MIB)
    allocator.free(allocator.malloc(70 * MIB))
    assert allocator.malloc(70 * MIB - LARGE_SEGMENT).segment == 4  # it would waste 20 MiB


def profile_of(module: str, mode: Mode, dtype: str, shape: tuple[int, ...]) -> MemoryProfile:
    with torch.device("meta"):
        block = registry.get(module).build(shape[1]).to(getattr(torch, dtype))
        return predict_peak(block, torch.randn(shape, dtype=getattr(torch, dtype)), mode=mode, device="cuda")


def of_profile(profile: MemoryProfile, monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[int, int | None]:
    with monkeypatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        found = replace(profile).held
    return found.allocated, found.reserved


@pytest.mark.parametrize(
    ("module", "mode", "dtype"),
    [
        ("gated_cnn", "infer", "float32"),
        ("gated_cnn", "train", "bfloat16"),
        ("grid", "infer", "float32"),
        ("grid", "train", "float32"),
        ("swin", "infer", "float32"),
        ("nc_ssd", "infer", "float32"),
    ],
)
def test_peaks_of_a_gpu_that_no_sum_of_blocks_explains(
    module: str, mode: Mode, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte, on an H200; what the process reserved there has two workspaces of cuBLAS beside it."""
    row = measured(module, mode, dtype, "1x512x128x128")
    profile = profile_of(module, mode, dtype, (1, 512, 128, 128))
    allocated, reserved = of_profile(profile, monkeypatch)
    assert profile.peak_bytes < allocated == int(row["measured_bytes"])
    assert reserved is not None
    assert 32 * MIB <= int(row["reserved_bytes"]) - reserved <= 112 * MIB


@pytest.mark.parametrize(
    ("module", "mode", "dtype"),
    [
        ("mhsa", "infer", "float32"),  # of two operators that share a block
        ("nc_ssd", "train", "bfloat16"),  # of a convolution whose copies are there before its gradients
    ],
)
def test_the_order_of_a_step_on_a_gpu(module: str, mode: Mode, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated, _ = of_profile(profile_of(module, mode, dtype, (1, 128, 64, 64)), monkeypatch)
    assert allocated == int(measured(module, mode, dtype, "1x128x64x64")["measured_bytes"])


def measured(module: str, mode: Mode, dtype: str, shape: str) -> dict[str, str]:
    with gzip.open(RUN, "rt", encoding="utf-8", newline="") as file:
        rows = {(row["module"], row["mode"], row["dtype"], row["shape"]): row for row in csv.DictReader(file)}
    return rows[module, mode, dtype, shape]


def test_options_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = profile_of("gated_cnn", "infer", "float32", (1, 64, 64, 64))
    assert of_profile(profile, monkeypatch, PYTORCH_ALLOC_CONF="expandable_segments:True") == (profile.peak_bytes, None)
    assert of_profile(profile, monkeypatch, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb: 4096") == of_profile(
        profile, monkeypatch
    )
    for text in ("backend:cudaMallocAsync", "roundup_power2_divisions:4", "max_split_size_mb:x", "expandable_segments"):
        with pytest.raises(UnpredictableError, match="the options of CUDA's allocator are"):
            of_profile(profile, monkeypatch, PYTORCH_CUDA_ALLOC_CONF=text)
