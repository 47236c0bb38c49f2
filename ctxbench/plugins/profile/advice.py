"""Sentences on what would make a pass cheaper, only where it is sure: the line, the cost, what it saves at most."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator

from ctxbench.base.call_sites import AGAIN, LOSS, Line
from ctxbench.base.number import significant
from ctxbench.plugins.memory.profile import MIB, MemoryProfile
from ctxbench.plugins.memory.remedy import PRODUCTS, WORTH_NAMING, fused_attention
from ctxbench.plugins.profile.costs import Cost
from ctxbench.plugins.profile.profile import Part, Pass

# Operators that move numbers and compute none.
_MOVES = ("clone", "copy", "contiguous", "_to_copy", "cat")
# A loop: one operator is called at one line so many times in a pass.
_MANY_CALLS = 8
# Small operators: so many calls in a pass, and a call takes at most so many times what one takes that computes nothing.
_SMALL_CALLS, _SMALL = 32, 2.0
# Operators after which Python knows a value or a shape: on a GPU they wait for all kernels before them.
_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero")
# A smaller share of the time of the pass gets no sentence.
_WORTH_TELLING = 0.05


def advice(taken: Pass, memory: MemoryProfile | None) -> list[str]:
    """The sentences, of a pass and, where it is known, its memory."""
    if not taken.has_times:
        return [*_kept_maps(memory)] if memory else []
    found = [*_moves(taken), *_loops(taken), *_wide(taken), *_waits(taken), *_small_calls(taken)]
    if memory is not None:
        found += [*_unfused(taken, memory), *_scaled_maps(taken, memory), *_layouts(taken, memory), *_kept_maps(memory)]
    return found


def _by_line(taken: Pass) -> dict[Line, list[Cost]]:
    lines: dict[Line, list[Cost]] = defaultdict(list)
    for cost in taken.costs:
        if cost.place.inner is not None and cost.ms:
            lines[cost.place.inner].append(cost)
    return lines


def _time(part: Part) -> str:
    return f"{significant(part.ms.value)} ms ({part.share:.0%} of all rows)"


def _of_lines(taken: Pass, wanted: Callable[[Cost], bool]) -> Iterator[tuple[Line, str, Part]]:
    """Each line with costs that are wanted: the names of their operators, and what they take together."""
    for line, costs in _by_line(taken).items():
        if chosen := [cost for cost in costs if wanted(cost)]:
            yield line, ", ".join(dict.fromkeys(cost.operator for cost in chosen)), taken.part(line, chosen)


def _moves(taken: Pass) -> Iterator[str]:
    for line, names, part in _of_lines(taken, lambda cost: cost.operator in _MOVES):
        if part.share >= _WORTH_TELLING:
            yield f"Without the copies at {line} ({names}, {_mib(part.moved_bytes)}), {_time(part)} are saved at most."


def _loops(taken: Pass) -> Iterator[str]:
    """Lines at which one module calls an operator many times in the forward pass."""
    for line, costs in _by_line(taken).items():
        most = max((cost for cost in costs if cost.phase == "forward"), key=lambda cost: cost.calls, default=None)
        part = taken.part(line, costs)
        if most and most.calls >= _MANY_CALLS and part.bound == "calls" and part.share >= _WORTH_TELLING:
            yield (
                f"At {line}, one module calls {most.operator} {most.calls} times, and starting the calls takes most of "
                f"{_time(part)}: if no call needs another's result, one for all saves {significant(part.saved_ms)} ms "
                "at most."
            )


def _wide(taken: Pass) -> Iterator[str]:
    """Lines that compute in float64 in a pass of a narrower dtype; the casts count as copies."""
    for line, names, part in _of_lines(taken, lambda cost: cost.is_wide and cost.operator not in _MOVES):
        if part.share >= _WORTH_TELLING:
            yield (
                f"At {line}, {names} compute in float64, though the pass does not: half of the bytes, and so about "
                f"half of {_time(part)}, {significant(part.ms.value / 2)} ms, are saved without; more where a device "
                "is slow in float64."
            )


def _waits(taken: Pass) -> Iterator[str]:
    """Lines at which Python asks for the value of a tensor."""
    for line, names, part in _of_lines(taken, lambda cost: cost.operator in _WAITS):
        yield (
            f"At {line}, Python waits for a value ({names}; .item() is one of them): without, the "
            f"{significant(part.ms.value)} ms of the operator are saved, and on a GPU the time in which it waits "
            "for all kernels before."
        )


def _small_calls(taken: Pass) -> Iterator[str]:
    """Many operators that take little longer than their start."""
    call_ms = taken.roof.call_s * 1e3
    small = [
        cost for cost in taken.costs if cost.calls and taken.part("", [cost]).ms.value <= _SMALL * cost.calls * call_ms
    ]
    part = taken.part("", small)
    if part.calls >= _SMALL_CALLS and part.share >= _WORTH_TELLING:
        yield (
            f"{part.calls} calls take little longer than it takes to start them, {_time(part)} together: fused by "
            f"torch.compile or by hand, {significant(part.saved_ms)} ms are saved at most, their time without that at "
            "the roofline."
        )


def _unfused(taken: Pass, memory: MemoryProfile) -> Iterator[str]:
    """A fused kernel has the same products to compute."""
    reasons = {where.removeprefix(f"{AGAIN} of "): reason for where, reason in memory.unfused.items()}
    for where, reason in reasons.items():
        part = taken.part(where, [cost for cost in taken.costs if str(cost.place.forward) == where])
        saved = max(0.0, part.ms.value - part.flops / taken.roof.flops * 1e3)
        yield (
            f"scaled_dot_product_attention at {where} has no fused kernel here: {reason}. The line takes "
            f"{_time(part)}; with one, {significant(saved)} ms are saved at most."
        )


def _scaled_maps(taken: Pass, memory: MemoryProfile) -> Iterator[str]:
    """A matrix product that is multiplied by a number: a factor of it, which is smaller, can be multiplied instead."""
    reads, makes = memory.reads_by_step(), {block.born for block in memory.allocations}
    for block in memory.allocations:
        step = memory.timeline[block.born]
        if step.phase == "backward" or len(step.call.given) != 1 or not block.op.startswith(("aten.mul.", "aten.div.")):
            continue
        for product in reads[block.born]:
            if not product.op.startswith(("aten.mm", "aten.bmm")) or makes & {*product.reads} != {block.born}:
                continue
            factors = (math.prod(each.shape) for each in reads[product.born] if each.born < product.born)
            share = min(factors, default=math.inf) / math.prod(block.shape)
            costs = [c for c in taken.costs if c.place.forward == block.place and c.operator in ("mul", "div")]
            part = taken.part(block.where, costs)
            if share < 1 and part.share >= _WORTH_TELLING:
                yield (
                    f"At {block.where} a product of {'x'.join(map(str, block.shape))} numbers is scaled. A factor "
                    f"has {share:.1%} as many: scale that, and {_time(part)} are saved at most."
                )


def _layouts(taken: Pass, memory: MemoryProfile) -> Iterator[str]:
    """Products and convolutions that copy an argument for its layout, but for that of the loss's gradient.

    A CPU's convolution has other blocks inside, too, so nothing is sure of it.
    """
    kernels = PRODUCTS if memory.device == "cpu" else (*PRODUCTS, "aten.convolution")
    reads = memory.reads_by_step()
    lines: dict[str, int] = defaultdict(int)
    for number, step in enumerate(memory.timeline):
        if step.op.startswith(kernels) and all(block.place.node != LOSS for block in reads[number]):
            lines[f"{step.op.split('.')[1]} at {step.where}"] += sum(step.inner)
    for where, size in lines.items():
        ms = 2 * size / taken.roof.bandwidth * 1e3
        if ms >= _WORTH_TELLING * taken.time.value:
            yield (
                f"The kernel of {where} copies {_mib(size)}, because the layout of an argument is not contiguous: "
                f"{significant(ms)} ms at the roofline."
            )


def _kept_maps(memory: MemoryProfile) -> Iterator[str]:
    for remedy in fused_attention(memory):
        if remedy.peak_bytes < (1 - WORTH_NAMING) * memory.peak_bytes:
            peaks = f"the peak is {_mib(remedy.peak_bytes)} and not {_mib(memory.peak_bytes)}"
            yield f"With {remedy.change}, {peaks}."


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"
