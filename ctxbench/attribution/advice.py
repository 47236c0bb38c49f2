"""Sentences on what would make a pass cheaper, only where it is sure: the line, the cost, what it saves at most."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from ctxbench.attribution.costs import Cost
from ctxbench.attribution.profile import Pass
from ctxbench.memory.profile import MIB, MemoryProfile
from ctxbench.memory.remedy import PRODUCTS, WORTH_NAMING, fused_attention
from ctxbench.number import significant

# Operators that move numbers and compute none.
_MOVES = ("clone", "copy", "contiguous", "_to_copy", "cat")
# A loop: one operator is called at one line so many times in a pass.
_MANY_CALLS = 8


def advice(taken: Pass, memory: MemoryProfile | None) -> list[str]:
    """The sentences, of a pass and, where it is known, its memory."""
    found = [*_moves(taken), *_loops(taken)]
    if memory is not None:
        found += [*_unfused(taken, memory), *_scaled_maps(taken, memory), *_layouts(memory), *_kept_maps(memory)]
    return found


def _kept_maps(memory: MemoryProfile) -> Iterator[str]:
    for remedy in fused_attention(memory):
        if remedy.peak_bytes < (1 - WORTH_NAMING) * memory.peak_bytes:
            peaks = f"the peak is {_mib(remedy.peak_bytes)} and not {_mib(memory.peak_bytes)}"
            yield f"With {remedy.change}, {peaks}."


def _by_line(costs: Iterator[Cost]) -> dict[str, list[Cost]]:
    lines: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        if cost.place.own is not None:
            lines[str(cost.place.own)].append(cost)
    return lines


def _time(taken: Pass, costs: list[Cost]) -> tuple[str, float]:
    """The time of these costs in words, and its share of the pass."""
    part = taken.part("", costs)
    return f"{significant(part.ms.value)} ms ({part.share.value:.0%} of the pass)", part.share.value


def _moves(taken: Pass) -> Iterator[str]:
    moves = (cost for cost in taken.costs if cost.operator in _MOVES and cost.ms)
    for line, costs in _by_line(moves).items():
        time, share = _time(taken, costs)
        if share >= WORTH_NAMING:
            names = ", ".join(dict.fromkeys(cost.operator for cost in costs))
            size = sum(cost.moved_bytes for cost in costs)
            yield f"Without the copies at {line} ({names}, {_mib(size)}), {time} are saved at most."


def _loops(taken: Pass) -> Iterator[str]:
    """Lines that call one operator many times in the forward pass."""
    for line, costs in _by_line(cost for cost in taken.costs if cost.ms).items():
        calls = Counter[str]()
        for cost in costs:
            if cost.phase == "forward":
                calls[cost.operator] += cost.calls
        operator, count = calls.most_common(1)[0] if calls else ("", 0)
        part = taken.part("", costs)
        if count >= _MANY_CALLS and part.bound == "calls" and part.share.value >= WORTH_NAMING:
            yield (
                f"At {line}, {operator} is called {count} times, and starting the calls takes most of "
                f"{_time(taken, costs)[0]}: one call for all saves {significant(part.saved_ms)} ms at most."
            )


def _unfused(taken: Pass, memory: MemoryProfile) -> Iterator[str]:
    for where, reason in memory.unfused.items():
        own = [cost for cost in taken.costs if str(cost.place).endswith(where)]
        part = taken.part("", own)
        yield (
            f"scaled_dot_product_attention at {where} has no fused kernel here: {reason}. It takes "
            f"{_time(taken, own)[0]}; at the roofline {significant(part.saved_ms)} ms less."
        )


def _scaled_maps(taken: Pass, memory: MemoryProfile) -> Iterator[str]:
    """A matrix product that is multiplied by a number: its left factor, which is smaller, can be multiplied instead."""
    reads = memory.reads_by_step()
    for block in memory.allocations:
        product = reads[block.born][0] if len(reads[block.born]) == 1 else None
        is_scaled = block.op.startswith(("aten.mul.", "aten.div.")) and product is not None and product is not block
        if memory.timeline[block.born].phase == "backward" or not is_scaled or product is None:
            continue
        factors = [each for each in reads[product.born] if each.born < product.born]
        smaller = min((math.prod(each.shape) for each in factors), default=0)
        if product.op.startswith(PRODUCTS) and product.shape[-2:] == block.shape[-2:] and smaller:
            share = smaller / math.prod(block.shape)
            own = [c for c in taken.costs if c.place == block.place and c.operator in ("mul", "div")]
            if share < 1 and _time(taken, own)[1] >= WORTH_NAMING:
                yield (
                    f"At {block.where} a product of {'x'.join(map(str, block.shape))} numbers is scaled. A factor "
                    f"has {share:.1%} as many: scale that, and {_time(taken, own)[0]} are saved at most."
                )


def _layouts(memory: MemoryProfile) -> Iterator[str]:
    """Products and convolutions that copy an argument for its layout."""
    lines: dict[str, int] = defaultdict(int)
    for step in memory.timeline:
        if step.op.startswith((*PRODUCTS, "aten.convolution")):
            lines[f"{step.op.split('.')[1]} at {step.where}"] += sum(step.inner)
    for where, size in lines.items():
        if size >= WORTH_NAMING * memory.peak_bytes:
            yield f"The kernel of {where} copies {_mib(size)}, because the layout of an argument is not contiguous."


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"
