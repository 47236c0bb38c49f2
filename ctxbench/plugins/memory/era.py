"""A pass under the PyTorch of 2020, read off the record of the same pass under that of today."""

from dataclasses import replace
from itertools import accumulate

from ctxbench.plugins.memory.profile import MemoryProfile


def in_2020(profile: MemoryProfile) -> MemoryProfile:
    """The pass of a profile for CUDA as the PyTorch of 2020 ran it, if it ran no other operators (`since_2020`)."""
    since, steps = profile.since_2020, len(profile.timeline)
    made = [replace(each) for each in profile.allocations]
    changes = [0] * (steps + 1)  # at each step, by how many bytes more is in memory than at the one before

    def add(size: int, first: int, end: int | None) -> None:
        changes[first] += size
        changes[steps if end is None else end] -= size

    for at, one, both, size in since.sums:  # then the sum was a new block
        first, total = made[one], made[both]
        add(first.bytes, at, at + 1)
        add(size - total.bytes, at, total.died)
        first.died, total.reused, total.bytes = at + 1, False, size
    for kept in since.kept:
        block = made[kept.block]
        until = made[kept.output].died if kept.until is None else kept.until
        if block.died is not None and (until is None or until > block.died):
            add(block.bytes, block.died, until)
            block.died = until
    for kept in reversed(since.kept):  # the first of several saved it
        if kept.saved_by:
            block = made[kept.block]
            block.saved_by = kept.saved_by
            block.category = "saved for backward" if block.category == "temporary" else block.category
    timeline = []
    for number, step, more in zip(range(steps), profile.timeline, accumulate(changes), strict=False):
        inner = since.inner.get(number, step.inner)
        live = step.live_bytes + more + sum(inner) - sum(step.inner)
        timeline.append(replace(step, live_bytes=live, inner=inner, workspace=0))
    return replace(profile, device="cuda-2020", timeline=timeline, allocations=made)
