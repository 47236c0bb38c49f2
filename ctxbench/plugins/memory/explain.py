"""Explains a predicted peak: where it is, what is in memory there, and why."""

from collections.abc import Iterator

from ctxbench.devices.cpu import processor
from ctxbench.plugins.memory.convention import is_bound
from ctxbench.plugins.memory.profile import MIB, MemoryProfile, MemoryStep
from ctxbench.plugins.memory.remedy import PRODUCTS, WORTH_NAMING, by_line, saved_lines


def explain(profile: MemoryProfile) -> list[str]:
    """Sentences on what is in memory at the peak and what would lower it, with every number from the profile."""
    return [_location(profile), _categories(profile), *_never_read_again(profile), *_saved_maps(profile),
            *_unfused(profile), *_inside_kernel(profile), *_not_included(profile)]  # fmt: skip


def _location(profile: MemoryProfile) -> str:
    step = profile.timeline[profile.peak_step]
    part = "optimizer's step" if profile.phase == "optimizer" else f"{profile.phase} pass"
    return (
        f"The peak, {_mib(profile.peak_bytes)}, is in the {part} at {step.op}"
        f"{f' ({step.where})' if step.where else ''}, step {profile.peak_step + 1} of {len(profile.timeline)}."
    )


def _categories(profile: MemoryProfile) -> str:
    parts = [f"{name} {_mib(size)} ({size / profile.peak_bytes:.0%})" for name, size in profile.by_category().items()]
    return f"In memory at the peak: {', '.join(parts)}."


def _never_read_again(profile: MemoryProfile) -> Iterator[str]:
    """Blocks that nothing reads again, and that a variable, or autocast's store of casts, keeps in memory."""
    peak = profile.peak_step
    running = profile.timeline[peak].where
    unread = {}
    for block in profile.allocations:
        last = max(block.reads, default=block.born)
        # what an attention without a fused kernel has read are its arguments and own variables
        held = running in profile.unfused and profile.timeline[last].where == running
        if block.alive_at(peak) and block.category == "temporary" and last < peak and not held:
            unread[block] = (last + 1, len(profile.timeline))
    for by_autocast, who, advice in (
        (False, "", "delete the variables (`del`), or use none"),
        (
            True,
            ", since autocast keeps the casts of weights",
            "switch that off by `cache_enabled=False` of torch.autocast",
        ),
    ):
        some = {block: steps for block, steps in unread.items() if block.by_autocast == by_autocast}
        least = profile.peak_without(some)
        if profile.peak_bytes - least < WORTH_NAMING * profile.peak_bytes:
            continue
        parts = [
            f"{_mib(size)} made by {blocks[0].op} at {where}"
            for where, blocks in by_line(some)
            if (size := sum(block.bytes for block in blocks)) >= WORTH_NAMING * profile.peak_bytes
        ]
        yield (
            f"{', '.join(parts)} stay in memory although nothing reads them again{who}: {advice}, and the peak is "
            f"{_mib(least)}."
        )


def _unfused(profile: MemoryProfile) -> Iterator[str]:
    for where, reason in profile.unfused.items():
        yield f"scaled_dot_product_attention at {where} has no fused kernel here: {reason}."


def _saved_maps(profile: MemoryProfile) -> Iterator[str]:
    """For each line that saves large maps for the backward pass: how large, and for which operators."""
    for where, blocks, _ in saved_lines(profile):
        size = sum(block.bytes for block in blocks)
        savers = ", ".join(sorted({block.saved_by for block in blocks if block.saved_by}))
        yield f"{_mib(size)} ({size / profile.peak_bytes:.0%}) made at {where} are saved for {savers}."


def _inside_kernel(profile: MemoryProfile) -> Iterator[str]:
    step = profile.timeline[profile.peak_step]
    if sum(step.inner) >= WORTH_NAMING * profile.peak_bytes:
        sizes = " + ".join(_mib(size) for size in step.inner)
        yield f"{step.op} allocates {sizes} inside its kernel{_advice(step)}."


def _advice(step: MemoryStep) -> str:
    """Words on the blocks inside a kernel: what they are, or what would need none."""
    if "scaled_dot_product" in step.op:
        return ""
    if "convolution" in step.op:
        return ": copies of maps that are not contiguous, sums of a bias's gradient, and a library's workspace if asked"
    if step.call.packet in PRODUCTS:
        return ": copies of arguments, which contiguous ones do not need"
    return "; a fused or chunked form of this operator would not"


def _not_included(profile: MemoryProfile) -> Iterator[str]:
    yield from profile.unchecked
    if profile.device == "cpu":
        yield f"The prediction for the CPU is for this machine: {processor()}."
    wrong = "may be higher" if is_bound(profile.marks) else "may be higher or lower"
    for operator, reason in profile.marks.items():
        yield f"Not all memory is known, so the peak {wrong}: {operator} ({reason})."
    if profile.high_bytes > profile.peak_bytes:
        yield (
            f"Up to {_mib(profile.high_bytes)} if cuDNN computes wide 3x3 convolutions by Winograd's algorithm in "
            "separate steps, whose workspace is not in the peak."
        )
    yield from map(str, profile.told)
    for name, size in profile.workspaces.items():
        yield f"Not included in the peak: the workspace of {name} ({size})."


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"
