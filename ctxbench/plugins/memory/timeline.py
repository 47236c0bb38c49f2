"""The bytes in memory at each step of a pass, reduced to as many steps as a drawing can show."""

from collections.abc import Sequence

from ctxbench.plugins.memory.profile import MemoryStep

MOST_POINTS = 200


def thinned(timeline: Sequence[MemoryStep], most: int = MOST_POINTS) -> list[int]:
    """Positions of at most `most` steps: those at which the bytes or the phase changes, and the last.

    If these are too many: the lowest and the highest step (the first of equals) in each of many equally long parts of
    the pass, so that the peak is among them, and both sides of a change of phase.
    """
    count = len(timeline)
    in_use = [step.live_bytes for step in timeline]
    turns = [step for step in range(1, count) if timeline[step].phase != timeline[step - 1].phase]
    changes = {step for step in range(1, count) if in_use[step] != in_use[step - 1]}
    kept = {0, count - 1, *turns, *changes}
    if len(kept) > most:
        kept = {0, count - 1, *turns, *(step - 1 for step in turns)}
        stretches = (most - len(kept)) // 2
        for number in range(stretches):
            stretch = range(number * count // stretches, (number + 1) * count // stretches)
            kept |= {min(stretch, key=in_use.__getitem__), max(stretch, key=in_use.__getitem__)}
    return sorted(kept)
