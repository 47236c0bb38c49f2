"""Explains a predicted peak: where it is, what is in memory there, and which changes would lower it."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ctxbench.memory.convention import UnpredictableError
from ctxbench.memory.kernels import Device
from ctxbench.memory.predict import predict_peak
from ctxbench.memory.profile import MIB, Allocation, MemoryProfile
from ctxbench.mode import Mode
from ctxbench.on_meta import on_meta

_WORTH_NAMING = 0.01  # a smaller part of the peak gets no sentence


@dataclass(frozen=True)
class Remedy:
    """A change to the module or its input, and the peak that is predicted with it, in bytes."""

    change: str
    peak_bytes: int


def explain(profile: MemoryProfile) -> list[str]:
    """Sentences on what is in memory at the peak and what would lower it, with every number from the profile."""
    return [_location(profile), _categories(profile), *_never_read_again(profile), *_saved_maps(profile),
            *_inside_kernel(profile), *_not_included(profile)]  # fmt: skip


def remedies(module: nn.Module, *inputs: Any, mode: Mode, device: Device = "cuda") -> list[Remedy]:
    """The changes that lower the peak, the largest effect first; the changed module is predicted again for each.

    Tried: in-place activations, checkpointing each block or what one line saves, half precision, half the batch. A
    change that is not possible for the module, or does not lower the peak, is left out.
    """
    profile = predict_peak(module, *inputs, mode=mode, device=device)
    peak = profile.peak_bytes
    found = [
        Remedy(f"checkpointing what {where} saves, at best (freed after the forward pass, then recomputed)", least)
        for where, _, least in _saved_lines(profile)
    ]
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


def _location(profile: MemoryProfile) -> str:
    step = profile.timeline[profile.peak_step]
    return (
        f"The peak, {_mib(profile.peak_bytes)}, is in the {profile.phase} pass at {step.op}"
        f"{f' ({step.where})' if step.where else ''}, step {profile.peak_step + 1} of {len(profile.timeline)}."
    )


def _categories(profile: MemoryProfile) -> str:
    parts = [f"{name} {_mib(size)} ({size / profile.peak_bytes:.0%})" for name, size in profile.by_category().items()]
    return f"In memory at the peak: {', '.join(parts)}."


def _never_read_again(profile: MemoryProfile) -> Iterator[str]:
    """Blocks that nothing reads again, and that stay in memory because a variable still refers to them."""
    peak = profile.peak_step
    unread = [
        block
        for block in profile.allocations
        if block.alive_at(peak) and block.category == "temporary" and max(block.reads, default=block.born) < peak
    ]
    all_spared: dict[Allocation, tuple[int, int]] = {}
    for where, blocks in _by_line(unread):
        size = sum(block.bytes for block in blocks)
        spared = {block: (max(block.reads, default=block.born) + 1, len(profile.timeline)) for block in blocks}
        all_spared |= spared
        if profile.peak_bytes - profile.peak_without(spared) < _WORTH_NAMING * profile.peak_bytes:
            continue
        yield (
            f"{_mib(size)} made by {blocks[0].op} at {where} stay in memory although nothing reads them again: delete "
            f"the variable (`del`), or use none, and the peak is {_mib(profile.peak_without(spared))}."
        )
    least = profile.peak_without(all_spared)
    if (
        len({block.where for block in all_spared}) > 1
        and profile.peak_bytes - least >= _WORTH_NAMING * profile.peak_bytes
    ):
        yield f"If all blocks that nothing reads again are freed, the peak is {_mib(least)}."


def _saved_maps(profile: MemoryProfile) -> Iterator[str]:
    """For each line that saves large maps for the backward pass: how large, and for which operators."""
    for where, blocks, _ in _saved_lines(profile):
        size = sum(block.bytes for block in blocks)
        savers = ", ".join(sorted({block.saved_by for block in blocks if block.saved_by}))
        yield f"{_mib(size)} ({size / profile.peak_bytes:.0%}) made at {where} are saved for {savers}."


def _saved_lines(profile: MemoryProfile) -> Iterator[tuple[str, list[Allocation], int]]:
    """The lines that save large maps for the backward pass, and the lowest peak if these are recomputed instead."""
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
        yield where, blocks, profile.peak_without(spared)


def _inside_kernel(profile: MemoryProfile) -> Iterator[str]:
    step = profile.timeline[profile.peak_step]
    if sum(step.inner) >= _WORTH_NAMING * profile.peak_bytes:
        advice = "" if "scaled_dot_product" in step.op else "; a fused or chunked form of this operator would not"
        yield f"{step.op} allocates {' + '.join(_mib(size) for size in step.inner)} inside its kernel{advice}."


def _not_included(profile: MemoryProfile) -> Iterator[str]:
    for operator, reason in profile.marks.items():
        yield f"Not all memory is known, so the peak may be higher: {operator} ({reason})."
    for name, size in profile.workspaces.items():
        yield f"Not included in the peak: the workspace of {name} ({size})."


def _by_line(blocks: list[Allocation]) -> list[tuple[str, list[Allocation]]]:
    lines: dict[str, list[Allocation]] = defaultdict(list)
    for block in blocks:
        lines[block.where].append(block)
    return sorted(lines.items(), key=lambda item: -sum(block.bytes for block in item[1]))


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"
