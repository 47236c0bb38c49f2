"""Sentences that answer "what do I change to need less": where the peak stands, what holds it, what remedies leave."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ctxbench.memory.convention import Mode, UnpredictableError
from ctxbench.memory.kernels import Device
from ctxbench.memory.predict import predict_peak
from ctxbench.memory.profile import MIB, Allocation, MemoryProfile

_WORTH_NAMING = 0.01  # of the peak


@dataclass(frozen=True)
class Remedy:
    """A change, and the peak that is predicted with it."""

    change: str
    peak_bytes: int


def sentences(profile: MemoryProfile) -> list[str]:
    """See `MemoryProfile.explain`."""
    return [_where_it_stands(profile), _what_holds_it(profile), *_held_in_vain(profile), *_saved_maps(profile),
            *_inside_kernel(profile), *_what_is_apart(profile)]  # fmt: skip


def remedies(module: nn.Module, *inputs: Any, mode: Mode, device: Device = "cuda") -> list[Remedy]:
    """The changes that lower the peak, each by predicting the changed module again, the largest effect first.

    Tried: in-place activations, checkpointing each block, half precision, half the batch. A change that the
    module does not allow, or that does not lower the peak, is left out.
    """
    peak = predict_peak(module, *inputs, mode=mode, device=device).peak_bytes
    found = []
    for change, predict in _changes(module, inputs, mode, device).items():
        try:
            found.append(Remedy(change, predict()))
        except (UnpredictableError, ValueError):
            continue
    return sorted((r for r in found if r.peak_bytes < peak), key=lambda remedy: remedy.peak_bytes)


def _changes(module: nn.Module, inputs: tuple[Any, ...], mode: Mode, device: Device) -> dict[str, Callable[[], int]]:
    def predicted(changed: nn.Module, given: tuple[Any, ...]) -> int:
        return predict_peak(changed, *given, mode=mode, device=device).peak_bytes

    meta = [_like(value) if isinstance(value, torch.Tensor) else value for value in inputs]
    halved = [v[: len(v) // 2] if isinstance(v, torch.Tensor) and v.dim() > 1 and len(v) > 1 else v for v in meta]
    changes: dict[str, Callable[[], int]] = {
        "in-place activations (inplace=True)": lambda: predicted(_in_place(module), tuple(meta)),
        "bfloat16 for weights and maps": lambda: predicted(_meta_copy(module).bfloat16(), _to(meta, torch.bfloat16)),
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
    twin = _meta_copy(module)
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


def _meta_copy(module: nn.Module) -> nn.Module:
    memo = {id(t): nn.Parameter(t.to("meta"), t.requires_grad) for t in module.parameters()}
    memo |= {id(t): t.to("meta") for t in module.buffers()}  # type: ignore[misc]  # a buffer is no parameter
    return copy.deepcopy(module, memo)


def _in_place(module: nn.Module) -> nn.Module:
    """A copy whose activation modules work in place; ValueError if there is nothing to change."""
    twin = _meta_copy(module)
    changed = [child for child in twin.modules() if getattr(child, "inplace", None) is False]
    if not changed:
        raise ValueError("no activation to change")
    for child in changed:
        child.inplace = True  # type: ignore[assignment]  # a plain attribute of nn's activations
    return twin


def _where_it_stands(profile: MemoryProfile) -> str:
    step = profile.timeline[profile.peak_step]
    return (
        f"The peak, {_mib(profile.peak_bytes)}, stands in the {profile.phase} pass at {step.op}"
        f"{f' ({step.where})' if step.where else ''}, step {profile.peak_step + 1} of {len(profile.timeline)}."
    )


def _what_holds_it(profile: MemoryProfile) -> str:
    parts = [f"{name} {_mib(size)} ({size / profile.peak_bytes:.0%})" for name, size in profile.by_category().items()]
    return f"It is made of {', '.join(parts)}."


def _held_in_vain(profile: MemoryProfile) -> Iterator[str]:
    """Blocks that nothing reads again, held because a name in the code still points at them."""
    peak = profile.peak_step
    idle = [
        block
        for block in profile.allocations
        if block.alive_at(peak) and block.category == "temporary" and max(block.reads, default=block.born) < peak
    ]
    all_spared: dict[Allocation, tuple[int, int]] = {}
    for where, blocks in _by_line(idle):
        size = sum(block.bytes for block in blocks)
        spared = {block: (max(block.reads, default=block.born) + 1, len(profile.timeline)) for block in blocks}
        all_spared |= spared
        if profile.peak_bytes - profile.peak_without(spared) < _WORTH_NAMING * profile.peak_bytes:
            continue
        yield (
            f"{_mib(size)} made by {blocks[0].op} at {where} are held though nothing reads them again: `del` the name, "
            f"or do not give it one, and the peak is {_mib(profile.peak_without(spared))}."
        )
    least = profile.peak_without(all_spared)
    if (
        len({block.where for block in all_spared}) > 1
        and profile.peak_bytes - least >= _WORTH_NAMING * profile.peak_bytes
    ):
        yield f"With all that is held in vain freed, the peak is {_mib(least)}."


def _saved_maps(profile: MemoryProfile) -> Iterator[str]:
    """For each line whose saved maps weigh, the best that recomputing them could reach."""
    backward = next((i for i, step in enumerate(profile.timeline) if step.phase == "backward"), None)
    if backward is None:
        return
    saved = [b for b in profile.allocations if b.category == "saved for backward" and b.alive_at(profile.peak_step)]
    for where, blocks in _by_line(saved):
        size = sum(block.bytes for block in blocks)
        if size < _WORTH_NAMING * profile.peak_bytes:
            continue
        spared = {}
        for block in blocks:
            last = max((step for step in block.reads if step < backward), default=block.born)
            again = min((step for step in block.reads if step >= backward), default=len(profile.timeline))
            spared[block] = (last + 1, again)
        least = profile.peak_without(spared)
        savers = ", ".join(sorted({block.saved_by for block in blocks if block.saved_by}))
        effect = (
            f"freed after the forward pass and recomputed for it (checkpointing), they leave {_mib(least)} at best"
            if least < profile.peak_bytes
            else "checkpointing them would not lower the peak, which needs them where it stands"
        )
        yield f"{_mib(size)} ({size / profile.peak_bytes:.0%}) of {where} are kept for {savers}: {effect}."


def _inside_kernel(profile: MemoryProfile) -> Iterator[str]:
    step = profile.timeline[profile.peak_step]
    if sum(step.inner) >= _WORTH_NAMING * profile.peak_bytes:
        yield (
            f"{step.op} holds {' + '.join(_mib(size) for size in step.inner)} inside its kernel; "
            "a fused or chunked form of this operator would not."
        )


def _what_is_apart(profile: MemoryProfile) -> Iterator[str]:
    for operator, reason in profile.marks.items():
        yield f"Not known, so the peak may be higher: {operator} ({reason})."
    for name, size in profile.workspaces.items():
        yield f"Apart from the peak: the workspace of {name} ({size})."


def _by_line(blocks: list[Allocation]) -> list[tuple[str, list[Allocation]]]:
    lines: dict[str, list[Allocation]] = defaultdict(list)
    for block in blocks:
        lines[block.where].append(block)
    return sorted(lines.items(), key=lambda item: -sum(block.bytes for block in item[1]))


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"
