"""CUDA's caching allocator without CUDA: what is allocated, and what is reserved.

The rules are those of c10/cuda/CUDACachingAllocator.cpp. A request becomes a multiple of 512 bytes. It takes the
smallest free block that is large enough, or else a new segment. What is left over becomes a free block if it is large
enough for one; otherwise the block is given whole. Free neighbours in a segment are joined.
"""

import os
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ctxbench.devices.cuda import Cuda
from ctxbench.plugins.memory.convention import UnpredictableError

MIB = 2**20
# Requests of up to SMALL bytes come from segments of SMALL_SEGMENT; those below LARGE from segments of LARGE_SEGMENT;
# any other from a segment of its own, a multiple of SMALL_SEGMENT.
SMALL, SMALL_SEGMENT, LARGE, LARGE_SEGMENT = MIB, 2 * MIB, 10 * MIB, 20 * MIB
# Variables that PyTorch reads the allocator's options from.
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@dataclass(frozen=True)
class AllocatorPeak:
    """The most bytes of a pass: in blocks that were given, and in segments, None where that is not known."""

    allocated: int
    reserved: int | None


class Block(NamedTuple):
    """Bytes of a segment from `start` on, in the order in which the allocator searches free blocks."""

    bytes: int
    segment: int
    start: int
    is_small: bool


@dataclass
class CachingAllocator:
    """The blocks of one stream of a device. From `max_split` bytes on no block is split; 0: any is. Sizes are bytes."""

    max_split: int = 0
    allocated: int = 0
    allocated_peak: int = 0
    reserved: int = 0
    reserved_peak: int = 0
    _free: dict[bool, list[Block]] = field(default_factory=lambda: {True: [], False: []})
    _starts: dict[tuple[int, int], Block] = field(default_factory=dict)  # free blocks by segment and first byte
    _ends: dict[tuple[int, int], Block] = field(default_factory=dict)
    _segments: dict[int, int] = field(default_factory=dict)
    _made: int = 0

    def malloc(self, request: int) -> Block:
        """Give a block for so many bytes."""
        size = max(Cuda.block_bytes, Cuda.in_blocks(request))
        block = self._found(size, size <= SMALL) or self._new(size, size <= SMALL)
        rest = block.bytes - size
        is_split = rest >= Cuda.block_bytes if block.is_small else rest > SMALL and not self._is_whole(size)
        if is_split:
            self._put(Block(rest, block.segment, block.start + size, block.is_small))
            block = block._replace(bytes=size)
        self.allocated += block.bytes
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        return block

    def free(self, block: Block) -> None:
        """Take a block back and join it with its free neighbours."""
        self.allocated -= block.bytes
        start, end = block.start, block.start + block.bytes
        if before := self._ends.get((block.segment, start)):
            start = self._taken(before).start
        if after := self._starts.get((block.segment, end)):
            end += self._taken(after).bytes
        self._put(Block(end - start, block.segment, start, block.is_small))

    def empty_cache(self) -> None:
        """Give back the segments without a block in use, and begin new peaks."""
        for block in [*self._free[True], *self._free[False]]:
            if block.bytes == self._segments[block.segment]:
                self._taken(block)
                self.reserved -= self._segments.pop(block.segment)
        self.allocated_peak, self.reserved_peak = self.allocated, self.reserved

    def _is_whole(self, size: int) -> bool:
        return bool(self.max_split) and size >= self.max_split

    def _found(self, size: int, is_small: bool) -> Block | None:
        """The smallest free block that is large enough, the oldest of equals; what is never split has its own."""
        free = self._free[is_small]
        at = bisect_left(free, (size,))
        if at == len(free):
            return None
        is_whole = self._is_whole(size)
        if is_whole != self._is_whole(free[at].bytes) or (is_whole and free[at].bytes >= size + LARGE_SEGMENT):
            return None
        return self._taken(free[at])

    def _new(self, size: int, is_small: bool) -> Block:
        """A new segment as one block."""
        large = LARGE_SEGMENT if size < LARGE else -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
        self._made += 1
        self._segments[self._made] = SMALL_SEGMENT if is_small else large
        self.reserved += self._segments[self._made]
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return Block(self._segments[self._made], self._made, 0, is_small)

    def _put(self, block: Block) -> None:
        insort(self._free[block.is_small], block)
        self._starts[block.segment, block.start] = self._ends[block.segment, block.start + block.bytes] = block

    def _taken(self, block: Block) -> Block:
        free = self._free[block.is_small]
        del free[bisect_left(free, block)]
        del self._starts[block.segment, block.start], self._ends[block.segment, block.start + block.bytes]
        return block


def options(environment: Mapping[str, str] = os.environ) -> tuple[bool, int]:
    """Return whether segments are expandable, so that each block is split, and the bytes from which none is.

    Raises UnpredictableError for options whose rules are not simulated.
    """
    text = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    found = dict(part.partition(":")[::2] for part in text.replace(" ", "").split(",") if part)
    expandable, size = found.pop("expandable_segments", "False"), found.pop("max_split_size_mb", "0")
    if found or expandable not in ("True", "False") or not size.isdigit():
        raise UnpredictableError(
            f"the options of CUDA's allocator are {text!r}; memory is predicted with expandable_segments:True, with "
            f"max_split_size_mb:N, or without options: unset {' and '.join(VARIABLES)}"
        )
    return expandable == "True", int(size) * MIB
