"""Predicted blocks against the CUDA caching allocator's own history: which blocks only one of the two has."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from ctxbench.plugins.memory.profile import MemoryProfile

BLOCK = 512  # bytes; the allocator rounds requests up to multiples of it
_NEAR = 4  # a kernel may allocate its outputs and its own blocks in any order
_FREED = ("free_requested", "free")


@dataclass(frozen=True)
class Block:
    """One allocation: bytes in whole blocks, what made it, and where."""

    bytes: int
    made_by: str
    where: str


@dataclass(frozen=True)
class UnmatchedBlock:
    """A block that only the prediction or only the allocator has."""

    only_in: Literal["prediction", "allocator"]
    block: Block


@dataclass(frozen=True)
class Comparison:
    """The allocator's peak above its start, the part of it in unmatched blocks, and all of these, largest first."""

    peak_bytes: int
    unmatched_bytes_at_peak: int
    unmatched: list[UnmatchedBlock]


def predicted_blocks(profile: MemoryProfile) -> list[Block]:
    """The blocks of a predicted pass in the order of their making, the weights left out."""
    by_step: dict[int, list[Block]] = defaultdict(list)
    for block in profile.allocations:
        if block.category != "weights" and not block.reused and block.bytes:
            by_step[block.born].append(Block(_whole(block.bytes), block.op, block.where))
    for number, step in enumerate(profile.timeline):
        by_step[number] += [Block(_whole(size), f"inside {step.op}", step.where) for size in step.inner]
    return [block for number in sorted(by_step) for block in by_step[number]]


def compare(profile: MemoryProfile, trace: Sequence[Mapping[str, Any]]) -> Comparison:
    """Match the blocks of a prediction with one device's trace of `torch.cuda.memory._snapshot()["device_traces"]`.

    The trace begins with the pass and ends with it. Sizes are matched in order.
    """
    predicted = predicted_blocks(profile)
    made = [(index, _from_entry(entry)) for index, entry in enumerate(trace) if entry["action"] == "alloc"]
    only_predicted, only_made = _without_partner([b.bytes for b in predicted], [block.bytes for _, block in made])
    peak, unmatched_at_peak = _replay(trace, {made[position][0] for position in only_made})
    unmatched = [UnmatchedBlock("prediction", predicted[position]) for position in only_predicted]
    unmatched += [UnmatchedBlock("allocator", made[position][1]) for position in only_made]
    return Comparison(peak, unmatched_at_peak, sorted(unmatched, key=lambda found: -found.block.bytes))


def _without_partner(first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
    """Positions of the sizes that have no partner in the other sequence, in order or next to it."""
    matches = SequenceMatcher(a=first, b=second, autojunk=False).get_matching_blocks()
    partner = {m.a + i: m.b + i for m in matches for i in range(m.size)}
    left = [position for position in range(len(first)) if position not in partner]
    right = sorted(set(range(len(second))) - set(partner.values()))
    shift = _shifts(partner, len(first))
    for position in list(left):
        near = [q for q in right if second[q] == first[position] and abs(q - position - shift[position]) <= _NEAR]
        if near:
            left.remove(position)
            right.remove(near[0])
    return left, right


def _shifts(partner: Mapping[int, int], length: int) -> list[int]:
    """For each position of the first sequence, how far the second runs ahead there."""
    shifts, current = [], 0
    for position in range(length):
        current = partner[position] - position if position in partner else current
        shifts.append(current)
    return shifts


def _replay(trace: Iterable[Mapping[str, Any]], unmatched: set[int]) -> tuple[int, int]:
    """The peak of a trace above its start, and the bytes of the `unmatched` entries in use there."""
    live = live_unmatched = peak = unmatched_at_peak = 0
    blocks: dict[int, tuple[int, int]] = {}  # address -> bytes, bytes if unmatched
    for index, entry in enumerate(trace):
        if entry["action"] == "alloc":
            size = _whole(entry["size"])
            blocks[entry["addr"]] = (size, size if index in unmatched else 0)
            live += size
            live_unmatched += blocks[entry["addr"]][1]
        elif entry["action"] in _FREED and entry["addr"] in blocks:
            size, unmatched_size = blocks.pop(entry["addr"])
            live -= size
            live_unmatched -= unmatched_size
        if live > peak:
            peak, unmatched_at_peak = live, live_unmatched
    return peak, unmatched_at_peak


def _from_entry(entry: Mapping[str, Any]) -> Block:
    frames = [f for f in entry.get("frames", ()) if f["filename"].endswith(".py") and "/torch/" not in f["filename"]]
    where = f"{frames[0]['filename'].rpartition('/')[2]}:{frames[0]['line']}" if frames else ""
    return Block(_whole(entry["size"]), "allocator", where)


def _whole(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
