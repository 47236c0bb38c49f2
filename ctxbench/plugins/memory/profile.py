"""The result of a memory prediction: every block and step of one pass, the peak, and what is in memory there."""

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Literal

from ctxbench.base.call_sites import CallSite
from ctxbench.base.notes import Note
from ctxbench.meta.calls import Operation, RecordedCall
from ctxbench.plugins.memory.allocator import AllocatorPeak, Block, CachingAllocator, options

MIB = 2**20
# Categories of what is there before the pass.
RESIDENT = ("weights", "optimizer state")
Category = Literal[
    "weights", "optimizer state", "saved for backward", "gradient", "weight gradient", "temporary", "output"
]
Phase = Literal["forward", "backward", "optimizer"]
# Of a step whose operator has not returned.
NOT_RUN = Operation("", (), (), ())


@dataclass(slots=True, eq=False)
class Allocation:
    """One block of memory and the steps of the pass during which it is in memory.

    It is there from step `born` up to, not including, step `died` (None: to the end). `reads` are the steps that used
    it, `place` is where it was made, `saved_by` the node that saved it.
    `reused`: it took over the memory of an earlier block, as an addition in place does. `by_autocast`: it is the cast
    of a weight, which autocast keeps.
    """

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    op: str
    category: Category
    place: CallSite
    born: int
    died: int | None = None
    reads: list[int] = field(default_factory=list)
    saved_by: str = ""
    reused: bool = False
    by_autocast: bool = False

    @property
    def where(self) -> str:
        """The line of the module's code, or the autograd node, that made it."""
        return str(self.place)

    def alive_at(self, step: int) -> bool:
        """Return whether the block is in memory during a step."""
        return self.born <= step and (self.died is None or step < self.died)


@dataclass(slots=True)
class MemoryStep:
    """One operator call, the most bytes in memory during it, with the blocks inside its kernel.

    These are `inner`; `workspace` bytes more may be taken by cuDNN.
    """

    op: str
    phase: Phase
    live_bytes: int
    inner: tuple[int, ...] = ()
    place: CallSite = field(default_factory=CallSite)
    workspace: int = 0
    call: Operation = NOT_RUN

    @property
    def where(self) -> str:
        """The line of the module's code, or the autograd node, that it belongs to."""
        return str(self.place)


@dataclass(frozen=True)
class Group:
    """Similar blocks: made by the same operator on the same line, for the same purpose."""

    category: Category
    op: str
    where: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int


@dataclass
class KeptInput:
    """An input that autograd kept beside an output until PyTorch 1.10: up to step `until`, None: as long as that lasts.

    `block` and `output` are their places among the allocations.
    """

    block: int
    output: int
    saved_by: str
    until: int | None = None


@dataclass
class Since2020:
    """Changes to a pass since the PyTorch of 2020.

    `inner` are the blocks inside kernels as they were then, by step, `sums` the gradients that are added in place:
    step, the places of the first and of the sum among the allocations, and the bytes of a new one. `others`: other
    operators ran, or their memory is not known.
    """

    inner: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sums: list[tuple[int, int, int, int]] = field(default_factory=list)
    kept: list[KeptInput] = field(default_factory=list)
    others: bool = False


@dataclass
class MemoryProfile:
    """Predicted peak memory of one module in one mode, under `ctxbench.plugins.memory.CONVENTION`. Sizes are bytes.

    `peak_bytes` is what the pass requests, in whole blocks; `held` what the device's allocator gives and reserves for
    it. `given` are the sizes of the inputs.
    `marks` are the operators whose memory is not known in full, with the reason: the peak is then a lower bound, or not
    certain (`convention.is_bound`). `workspaces` are what the device's libraries allocate, which it does not include.
    `unfused` are the lines whose `scaled_dot_product_attention` takes no fused kernel, with the reason, `scans` those
    that call a scan of `ctxbench.meta.scan`, with the bytes that a fused kernel would read and write in the pass.
    `unchecked` are sentences on a PyTorch or a processor that the rules of kernels were not compared with. So many
    parameters are `trained`: in training, each gets a gradient. `told` are notes on what libraries take on a card.
    Operators are `replaced` where those that ran may have other products than a count of the module's own takes.
    `calls` are those of the timeline, with composite operators and scans that counters ask for, each after its parts.
    """

    module: str
    mode: str
    device: str
    weights_bytes: int
    timeline: list[MemoryStep]
    allocations: list[Allocation]
    marks: dict[str, str]
    workspaces: dict[str, str]
    unfused: dict[str, str] = field(default_factory=dict)
    scans: dict[str, int] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    trained: int = 0
    told: list[Note] = field(default_factory=list)
    replaced: bool = False
    given: tuple[int, ...] = ()
    calls: list[RecordedCall] = field(default_factory=list)
    since_2020: Since2020 = field(default_factory=Since2020)

    def reads_by_step(self) -> dict[int, list[Allocation]]:
        """The blocks that each step reads; a step that reads none has an empty list."""
        found: dict[int, list[Allocation]] = defaultdict(list)
        for block in self.allocations:
            for step in block.reads:
                found[step].append(block)
        return found

    def in_scan(self, where: str) -> str:
        """The line of the scan that a line or an autograd node belongs to; "" if it belongs to none."""
        line = where.rpartition(" of ")[2]
        return line if line in self.scans else ""

    @cached_property
    def peak_step(self) -> int:
        """The step with the most bytes in memory, the first of equals."""
        return max(range(len(self.timeline)), key=lambda step: self.timeline[step].live_bytes)

    @property
    def peak_bytes(self) -> int:
        """The most bytes in memory at any step."""
        return self.timeline[self.peak_step].live_bytes

    @cached_property
    def held(self) -> AllocatorPeak:
        """The memory that is allocated and reserved. UnpredictableError for unknown options of the allocator."""
        if self.device != "cuda":  # published peaks were compared with the requests of `cuda-2020`
            return AllocatorPeak(self.peak_bytes, None)
        expandable, max_split = options(os.environ)
        if expandable:
            return AllocatorPeak(self.peak_bytes, None)
        return self._simulated(CachingAllocator(max_split))

    def _simulated(self, allocator: CachingAllocator) -> AllocatorPeak:
        """The second of two passes, with the cache emptied in between, as a peak is measured."""
        resident = [block.bytes for block in self.allocations if block.category in RESIDENT]
        for size in (*resident, *self.given):
            allocator.malloc(size)
        for block in self._run_on(allocator):
            allocator.free(block)
        allocator.empty_cache()
        before = allocator.allocated
        self._run_on(allocator)
        return AllocatorPeak(sum(resident) + allocator.allocated_peak - before, allocator.reserved_peak)

    def _run_on(self, allocator: CachingAllocator) -> list[Block]:
        """Give the blocks of the pass and take them back, step by step; return those that outlive it."""
        born: dict[int, list[Allocation]] = defaultdict(list)
        died: dict[int, list[Allocation]] = defaultdict(list)
        for block in self.allocations:
            if block.category not in RESIDENT and block.bytes:
                born[block.born].append(block)
                died[len(self.timeline) + 1 if block.died is None else block.died].append(block)
        given: dict[Allocation, Block] = {}
        for at, step in enumerate(self.timeline):
            gone = [block for block in died[at] if block in given]
            for block in born[at]:
                if block.reused and (same := next((each for each in gone if each.bytes == block.bytes), None)):
                    gone.remove(same)
                    given[block] = given.pop(same)
            for block in gone:
                allocator.free(given.pop(block))
            # a convolution's gradients are made after the kernel's own blocks
            is_before = "convolution_backward" in step.op
            own = [allocator.malloc(size) for size in step.inner if is_before]
            given |= {block: allocator.malloc(block.bytes) for block in born[at] if block not in given}
            own += [allocator.malloc(size) for size in step.inner if not is_before]
            for inner in own:
                allocator.free(inner)
        for block in died[len(self.timeline)]:
            allocator.free(given.pop(block))
        return [*given.values()]

    @property
    def allocated_bytes(self) -> int:
        """The peak as the device's allocator counts it."""
        return self.held.allocated

    @property
    def needed_bytes(self) -> int:
        """Bytes that are surely enough on the device: what is reserved, or else what is allocated."""
        return self.held.reserved or self.held.allocated

    @property
    def high_bytes(self) -> int:
        """The peak if cuDNN takes the workspace that it may for wide 3x3 convolutions."""
        return max(step.live_bytes + step.workspace for step in self.timeline)

    @property
    def at_op(self) -> str:
        """The operator that runs at the peak."""
        return self.timeline[self.peak_step].op

    @property
    def phase(self) -> Phase:
        """The pass in which the peak is."""
        return self.timeline[self.peak_step].phase

    @property
    def alive(self) -> list[Allocation]:
        """The blocks in memory at the peak, with those inside the kernel, largest first; their sum is the peak."""
        step = self.timeline[self.peak_step]
        blocks = [block for block in self.allocations if block.alive_at(self.peak_step)]
        blocks += [
            Allocation(size, (), "", f"inside {step.op}", "temporary", step.place, self.peak_step)
            for size in step.inner
        ]
        return sorted(blocks, key=lambda block: -block.bytes)

    def by_category(self) -> dict[Category, int]:
        """Bytes in memory at the peak, by purpose, largest first."""
        sums: dict[Category, int] = defaultdict(int)
        for block in self.alive:
            sums[block.category] += block.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def groups(self) -> list[Group]:
        """The blocks in memory at the peak, similar ones together, largest first; the weights are one group."""
        similar: dict[tuple[Category, str, str, tuple[int, ...], str], list[int]] = defaultdict(list)
        for block in self.alive:
            if block.category == "weights":
                key: tuple[Category, str, str, tuple[int, ...], str] = ("weights", "", "parameters and buffers", (), "")
            else:
                key = (block.category, block.op, block.where, block.shape, block.dtype)
            similar[key].append(block.bytes)
        found = [Group(*key, count=len(sizes), bytes=sum(sizes)) for key, sizes in similar.items()]
        return sorted(found, key=lambda group: -group.bytes)

    def peak_without(self, spared: dict[Allocation, tuple[int, int]], no_inner: Iterable[int] = ()) -> int:
        """The peak if each block were not in memory between two steps of the pass, the second not included.

        `no_inner` are steps without blocks inside their kernel.
        """
        steps = len(self.timeline)
        spans = [(sum(self.timeline[step].inner), step, step + 1) for step in no_inner]
        for block, (start, stop) in spared.items():
            died = steps if block.died is None else block.died
            spans.append((block.bytes, max(start, block.born), min(stop, died)))
        changes = [0] * (steps + 1)  # at each step, by how much more is spared than at the one before
        for size, first, last in spans:
            if first < last:
                changes[first] += size
                changes[last] -= size
        saved = accumulate(changes[:steps])
        return max(step.live_bytes - less for step, less in zip(self.timeline, saved, strict=True))
