"""Predicted blocks against those that the allocator made, as the profiler saw them: which blocks only one has."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import torch
from gpu_step import Case
from torch.nn.attention import SDPBackend, sdpa_kernel

from ctxbench.devices.cpu import quiet_kineto
from ctxbench.devices.cuda import Cuda
from ctxbench.plugins.memory.one_pass import prepared, run_pass
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

# On compute capability 9.0 a process that has used CUDA prefers cuDNN's kernel, which is not predicted.
NOT_PREDICTED = (SDPBackend.CUDNN_ATTENTION, SDPBackend.OVERRIDEABLE, SDPBackend.ERROR)
_NEAR = 4  # a kernel may allocate its outputs and its own blocks in any order
# Operators that only allocate: the one that calls them is named.
_ALLOCATES = ("empty", "resize_", "zeros", "new_", "set_", "zero_", "detach")


@dataclass(frozen=True)
class Block:
    """One allocation: bytes in whole blocks, what made it, and where."""

    bytes: int
    made_by: str
    where: str = ""


@dataclass(frozen=True)
class UnmatchedBlock:
    """A block that only the prediction or only the allocator has."""

    only_in: Literal["prediction", "allocator"]
    block: Block


def differing_blocks(case: Case, device: str) -> list[UnmatchedBlock]:
    """Differences between a case predicted anew, without cuDNN's attention as in a new process, and its traced run."""
    module, image = case.built(device)
    with sdpa_kernel([each for each in SDPBackend.__members__.values() if each not in NOT_PREDICTED]):
        profile = predict_peak(*case.built("meta"), mode=case.mode, device="cuda")
    with prepared(module, case.mode):
        run_pass(module, (image,), case.mode)
        module.zero_grad(set_to_none=True)
        made = made_blocks(lambda: run_pass(module, (image,), case.mode), image.device)
    return compare(profile, made)


def made_blocks(run_pass: Callable[[], object], device: torch.device) -> list[Block]:
    """Run a pass under PyTorch's profiler; the blocks of the device in the order of their making."""
    with quiet_kineto(), torch.autograd.profiler.profile(profile_memory=True) as profiler:
        output = run_pass()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    del output
    found = _walk(profiler.kineto_results.experimental_event_tree(), device.type, ())
    return [block for _, block in sorted(found, key=lambda pair: pair[0])]


def _walk(nodes: Iterable[Any], kind: str, operators: tuple[str, ...]) -> Iterator[tuple[int, Block]]:
    for node in nodes:
        if node.tag == torch._C._profiler._EventType.Allocation:
            fields = node.extra_fields
            if fields.device.type == kind and fields.alloc_size > 0:
                yield node.start_time_ns, made_within(fields.alloc_size, operators)
        else:
            yield from _walk(node.children, kind, (*operators, node.name))


def made_within(size: int, operators: Sequence[str]) -> Block:
    """A block that was made within these operators, the inner ones last."""
    names = [name.removeprefix("aten::") for name in operators]
    working = [name for name in names if not name.startswith(_ALLOCATES)]
    return Block(_whole(size), working[-1] if working else "no operator", " > ".join(names[:2]))


def predicted_blocks(profile: MemoryProfile) -> list[Block]:
    """The blocks of a predicted pass in the order of their making, the weights left out."""
    by_step: dict[int, list[Block]] = defaultdict(list)
    for block in profile.allocations:
        if block.category != "weights" and not block.reused and block.bytes:
            by_step[block.born].append(Block(_whole(block.bytes), block.op, block.where))
    for number, step in enumerate(profile.timeline):
        by_step[number] += [Block(_whole(size), f"inside {step.op}", step.where) for size in step.inner]
    return [block for number in sorted(by_step) for block in by_step[number]]


def compare(profile: MemoryProfile, made: Sequence[Block]) -> list[UnmatchedBlock]:
    """Blocks of a prediction and of the same pass that have no partner, the largest first. Sizes match in order."""
    predicted = predicted_blocks(profile)
    only_predicted, only_made = _without_partner([each.bytes for each in predicted], [each.bytes for each in made])
    unmatched = [UnmatchedBlock("prediction", predicted[position]) for position in only_predicted]
    unmatched += [UnmatchedBlock("allocator", made[position]) for position in only_made]
    return sorted(unmatched, key=lambda found: -found.block.bytes)


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


def _whole(size: int) -> int:
    return -(-size // Cuda.block_bytes) * Cuda.block_bytes
