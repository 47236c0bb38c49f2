"""Changes to a module that would lower its predicted peak, with the peak that each would leave."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ctxbench.base.call_sites import WRAPPER
from ctxbench.base.mode import Mode
from ctxbench.meta.calls import Map
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.kernels import MemoryDevice
from ctxbench.plugins.memory.predict import on_card, predict_peak
from ctxbench.plugins.memory.profile import Allocation, MemoryProfile

WORTH_NAMING = 0.01  # a smaller part of the peak gets no sentence
PRODUCTS = ("aten.mm", "aten.bmm", "aten.baddbmm", "aten.addmm")
COPIES = ("aten._to_copy", "aten.native_dropout")  # what a fused kernel does to its weights
_ELEMENTWISE = ("aten.mul", "aten.div", "aten.add", "aten.sub", "aten.masked_fill", "aten.where", "aten._to_copy")


@dataclass(frozen=True)
class Remedy:
    """A change to the module or its input, and the peak that is predicted with it, in bytes."""

    change: str
    peak_bytes: int


@without_compiler()
def remedies(
    module: nn.Module,
    *inputs: Any,
    mode: Mode,
    device: MemoryDevice = "cuda",
    autocast: torch.dtype | None = None,
    optimizer: str = "",
    profile: MemoryProfile | None = None,
    card: str = "",
    dtype: str = "float32",
) -> list[Remedy]:
    """The changes that lower the peak, the largest effect first; the changed module is predicted again for each.

    Tried: in-place activations, checkpointing each block or what one line saves, fused attention and scans, half
    precision, half the batch. A change that is not possible for the module, or does not lower the peak, is left out.
    `profile` is that of the module as it is, if it is known; on a `card` each has the workspaces of `on_card`, for a
    case of this `dtype`.
    """

    def profile_of(changed: nn.Module, *given: Any) -> MemoryProfile:
        found = predict_peak(changed, *given, mode=mode, device=device, autocast=autocast, optimizer=optimizer)
        return on_card(found, card, dtype)

    profile = profile or profile_of(module, *inputs)
    peak = profile.peak_bytes
    found = [*fused_attention(profile), *fused_scans(profile)]
    found += [
        Remedy(f"checkpointing what {where} saves, at best (freed after the forward pass, then recomputed)", least)
        for where, _, least in saved_lines(profile)
        if where != WRAPPER
    ]
    for change, predict in _changes(module, inputs, mode, profile_of).items():
        try:
            found.append(Remedy(change, predict()))
        except (UnpredictableError, ValueError):
            continue
    return sorted((r for r in found if r.peak_bytes < peak), key=lambda remedy: remedy.peak_bytes)


def _changes(
    module: nn.Module, inputs: tuple[Any, ...], mode: Mode, profile_of: Callable[..., MemoryProfile]
) -> dict[str, Callable[[], int]]:
    def predicted(changed: nn.Module, given: tuple[Any, ...]) -> int:
        return profile_of(changed, *given).peak_bytes

    meta = [_like(value) if isinstance(value, torch.Tensor) else value for value in inputs]
    halved = [v[: len(v) // 2] if isinstance(v, torch.Tensor) and v.dim() > 1 and len(v) > 1 else v for v in meta]
    changes: dict[str, Callable[[], int]] = {
        "in-place activations (inplace=True)": lambda: predicted(_in_place(module), tuple(meta)),
        "bfloat16 for weights and maps": lambda: predicted(on_meta(module).bfloat16(), _to(meta, torch.bfloat16)),
    }
    if mode == "train":
        changes["checkpointing each block (torch.utils.checkpoint)"] = lambda: predicted(
            _checkpoint_blocks(module), tuple(meta)
        )
    if any(a is not b and a.shape != b.shape for a, b in zip(meta, halved, strict=True) if isinstance(a, torch.Tensor)):
        changes["half the batch"] = lambda: predicted(module, tuple(halved))
    return changes


class _Checkpointed(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *inputs: Any) -> Any:
        return checkpoint(self.block, *inputs, use_reentrant=False, preserve_rng_state=False)


def _checkpoint_blocks(module: nn.Module) -> nn.Module:
    """A copy whose children that have children themselves are checkpointed; ValueError if there is none."""
    twin = on_meta(module)
    lists = [child for child in twin.children() if isinstance(child, nn.ModuleList)]
    found = [
        (parent, name, child)
        for parent in (twin, *lists)
        for name, child in parent.named_children()
        if child not in lists and any(True for _ in child.children())
    ]
    if not found:
        raise ValueError("no block to checkpoint")
    for parent, name, child in found:
        setattr(parent, name, _Checkpointed(child))
    return twin


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _to(values: list[Any], dtype: torch.dtype) -> tuple[Any, ...]:
    return tuple(v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values)


def _in_place(module: nn.Module) -> nn.Module:
    """A copy whose activation modules work in place; ValueError if there is nothing to change."""
    twin = on_meta(module)
    changed = [child for child in twin.modules() if getattr(child, "inplace", None) is False]
    if not changed:
        raise ValueError("no activation to change")
    for child in changed:
        child.inplace = True  # type: ignore[assignment]  # a plain attribute of nn's activations
    return twin


def fused_attention(profile: MemoryProfile) -> Iterator[Remedy]:
    """Softmaxes of matrix products, as if a fused kernel stored neither their results nor maps of this size."""
    reads = profile.reads_by_step()
    affinities: dict[tuple[int, ...], list[str]] = defaultdict(list)  # numbers and sides -> lines
    for block in profile.allocations:
        if "softmax." in block.op and _is_of_product(block, reads) and _weighs_values(block, profile):
            affinities[_size(block)].append(block.where)
    for size, lines in affinities.items():
        maps = {b: (b.born, len(profile.timeline)) for b in profile.allocations if _size(b) == size}
        inside = [i for i, step in enumerate(profile.timeline) if "softmax" in step.op and maps.keys() & {*reads[i]}]
        change = (
            f"fused attention at {', '.join(dict.fromkeys(lines))}, at best (no map of {size[1]} x {size[2]} is stored)"
        )
        yield Remedy(change, profile.peak_without(maps, inside))


def fused_scans(profile: MemoryProfile) -> Iterator[Remedy]:
    """Scans, as if one kernel in each direction stored nothing that it alone reads."""
    inside = {i for i, step in enumerate(profile.timeline) if profile.in_scan(step.where)}
    own = [block for block in profile.allocations if block.born in inside and inside.issuperset(block.reads)]
    if inside:
        change = f"a fused scan at {', '.join(profile.scans)}, at best (no state is stored)"
        yield Remedy(change, profile.peak_without({b: (b.born, len(profile.timeline)) for b in own}, inside))


def _size(block: Allocation) -> tuple[int, ...]:
    return math.prod(block.shape), *sorted(block.shape[-2:])


def _is_of_product(block: Allocation, reads: dict[int, list[Allocation]]) -> bool:
    """Return whether a block is made of a matrix product of its size, scaled, masked or cast on the way."""
    sources = [source for source in reads[block.born] if _size(source) == _size(block) and source.born < block.born]
    return any(
        _is_product(source, reads) or (source.op.startswith(_ELEMENTWISE) and _is_of_product(source, reads))
        for source in sources
    )


def _weighs_values(block: Allocation, profile: MemoryProfile) -> bool:
    """Return whether the forward pass only sums values by a softmax's weights, along the softmax's axis.

    A fused kernel does nothing else: it normalises over no other axis, and multiplies the weights with no other map.
    """
    softmax = profile.timeline[block.born].call
    weights, axis = softmax.out[0], softmax.args[1]
    summed = weights.shape[axis], weights.strides[axis]
    blocks, left = {block}, [block]
    while left:
        for step in left.pop().reads:
            call = profile.timeline[step].call
            if profile.timeline[step].phase != "forward" or call.is_view or step == block.born:
                continue
            if call.packet in PRODUCTS:
                first, second = call.args[-2:]
                sides = ((first, first.ndim - 1), (second, second.ndim - 2))
                if not any((side.shape[at], side.strides[at]) == summed for side, at in sides if _same(side, weights)):
                    return False
            elif call.packet in COPIES and call.out[0].strides == weights.strides:
                copies = {each for each in profile.allocations if each.born == step and _size(each) == _size(block)}
                left += copies - blocks
                blocks |= copies
            else:
                return False
    return True


def _same(one: Map, other: Map) -> bool:
    return one.numel() == other.numel()


def _is_product(block: Allocation, reads: dict[int, list[Allocation]]) -> bool:
    """Return whether it is a matrix product; one that is as large as a factor of it is not told from that."""
    factors = [each for each in reads[block.born] if each.born < block.born]
    return block.op.startswith(PRODUCTS) and _size(block) not in map(_size, factors)


def saved_lines(profile: MemoryProfile) -> Iterator[tuple[str, list[Allocation], int]]:
    """The lines that save large maps for the backward pass, and the lowest peak if these are recomputed instead."""
    backward = next((i for i, step in enumerate(profile.timeline) if step.phase == "backward"), None)
    if backward is None:
        return
    saved = [b for b in profile.allocations if b.category == "saved for backward" and b.alive_at(profile.peak_step)]
    for where, blocks in by_line(saved):
        size = sum(block.bytes for block in blocks)
        if size < WORTH_NAMING * profile.peak_bytes:
            continue
        spared = {}
        for block in blocks:
            last = max((step for step in block.reads if step < backward), default=block.born)
            again = min((step for step in block.reads if step >= backward), default=len(profile.timeline))
            spared[block] = (last + 1, again)
        yield where, blocks, profile.peak_without(spared)


def by_line(blocks: Iterable[Allocation]) -> list[tuple[str, list[Allocation]]]:
    """The blocks by the line that made them, the largest sum first."""
    lines: dict[str, list[Allocation]] = defaultdict(list)
    for block in blocks:
        lines[block.where].append(block)
    return sorted(lines.items(), key=lambda item: -sum(block.bytes for block in item[1]))
