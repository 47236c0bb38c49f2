"""cuDNN's attention, which PyTorch takes on some cards; its workspace by a formula that was read off an H200."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ctxbench.base.notes import Note
from ctxbench.devices.cuda import Cuda
from ctxbench.meta.calls import Map, Operation
from ctxbench.plugins.memory.attention import ATTENTION, TAKES_CUDNN
from ctxbench.plugins.memory.convention import ON_THIS_CARD
from ctxbench.plugins.memory.profile import MIB, Allocation, MemoryProfile, MemoryStep

FLASH, EFFICIENT, BACKWARD = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_backward",
)
# Major compute capabilities on which PyTorch prefers cuDNN's attention (aten/src/ATen/native/transformers/cuda/
# sdp_utils.cpp), and the whole one on which all heads take the path of other cards without it.
PREFERRED, AS_PREDICTED = (9, 10), 800
# Channels of a head, and the fewest positions, that cuDNN's kernel takes.
MOST_CHANNELS, LEAST_POSITIONS = 128, 2
HALF = ("float16", "bfloat16")


def with_attention(profile: MemoryProfile, capability: int) -> MemoryProfile:
    """The profile with the blocks of cuDNN's attention on a card of this compute capability, times 100.

    The mark of attention goes where it is known what the card takes.
    """
    marks = {name: why for name, why in profile.marks.items() if name != ATTENTION}
    if profile.marks.get(ATTENTION) != TAKES_CUDNN:
        return profile
    if capability == AS_PREDICTED:
        return replace(profile, marks=marks)
    calls = {at: step.call for at, step in enumerate(profile.timeline) if _is_attention(step.call)}
    if capability // 100 not in PREFERRED or not all(map(_takes, calls.values())):
        return profile
    # a mask that needs a gradient has the memory-efficient kernel
    trained = any(each.operator == EFFICIENT + BACKWARD and each.out[3].numel() for each in calls.values())
    taken = [at for at, each in calls.items() if not (trained and each.operator.startswith(EFFICIENT))]
    steps = [*profile.timeline]
    for at in taken:
        steps[at] = _with(steps[at])
    marks.pop(f"aten.{FLASH}", None)
    told = [*profile.told]
    if most := max((workspace(calls[at]) for at in taken if calls[at].operator.endswith(BACKWARD)), default=0):
        told.append(Note("cudnn_attention", {"mib": most / MIB}))
    found = replace(profile, timeline=steps, marks=marks, told=told)
    plain = _without(found, _aligned_masks(profile, taken))
    if plain.peak_bytes < found.peak_bytes:
        plain.marks[ATTENTION + ON_THIS_CARD] = "a kernel that takes an aligned copy of the mask needs more"
        plain.told.append(Note("cudnn_mask", {"mib": found.peak_bytes / MIB}))
    return plain


def workspace(call: Operation) -> int:
    """Bytes of the gradient: the query's in float32, a number for each of its heads and positions, a small block."""
    query: Map = call.args[1]
    return 4 * query.numel() + 4 * query.numel() // query.shape[-1] + Cuda.block_bytes


def _is_attention(call: Operation) -> bool:
    return call.operator.removesuffix(BACKWARD) in (FLASH, EFFICIENT) and call.out[0].dtype in HALF


def _takes(call: Operation) -> bool:
    """Return whether cuDNN's kernel takes the arguments of another kernel's call."""
    first = 1 if call.operator.endswith(BACKWARD) else 0
    query, key, value = call.args[first : first + 3]
    channels = {each.shape[-1] for each in (query, key, value)}
    fits = len(channels) == 1 and max(channels) <= MOST_CHANNELS and not max(channels) % 8
    return (
        fits
        and min(query.shape[2], key.shape[2]) >= LEAST_POSITIONS
        and (
            FLASH in call.operator or call.args[first + 3] is not None  # a mask
        )
    )


def _with(step: MemoryStep) -> MemoryStep:
    """A step of cuDNN's kernel: in the gradient a copy of what comes in with other strides, and the workspace."""
    inner: tuple[int, ...] = ()
    if step.call.operator.endswith(BACKWARD):
        grad, output = step.call.args[0], step.call.args[5 if EFFICIENT in step.call.operator else 4]
        copy = (Cuda.in_blocks(grad.numel() * grad.itemsize),) * (grad.strides != output.strides)
        inner = (*copy, Cuda.in_blocks(workspace(step.call)))
    return replace(step, inner=inner, live_bytes=step.live_bytes + sum(inner) - sum(step.inner))


def _aligned_masks(profile: MemoryProfile, steps: Iterable[int]) -> Iterator[Allocation]:
    """Copies of masks with rows at multiples of 8 numbers, which cuDNN does not need."""
    for block in profile.allocations:
        if "constant_pad_nd" in block.op and {*block.reads} & {*steps}:
            yield block


def _without(profile: MemoryProfile, blocks: Iterable[Allocation]) -> MemoryProfile:
    gone = [*blocks]
    steps = [
        replace(step, live_bytes=step.live_bytes - sum(each.bytes for each in gone if each.alive_at(at)))
        for at, step in enumerate(profile.timeline)
    ]
    kept = [each for each in profile.allocations if each not in gone]
    return replace(profile, timeline=steps, allocations=kept)
