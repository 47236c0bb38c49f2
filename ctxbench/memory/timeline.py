"""The course of the held bytes over a pass, thinned to what a drawing can show."""

from collections.abc import Sequence

from ctxbench.memory.profile import Step

MOST_POINTS = 200


def thinned(timeline: Sequence[Step], most: int = MOST_POINTS) -> list[int]:
    """Positions of at most `most` steps: those at which the held bytes or the phase changes, and the last.

    Where that is too many, of each of equal stretches of the pass its first lowest and its first highest step, so that
    the peak is among them, and both sides of a change of phase.
    """
    count = len(timeline)
    held = [step.live_bytes for step in timeline]
    turns = [step for step in range(1, count) if timeline[step].phase != timeline[step - 1].phase]
    changes = {step for step in range(1, count) if held[step] != held[step - 1]}
    kept = {0, count - 1, *turns, *changes}
    if len(kept) > most:
        kept = {0, count - 1, *turns, *(step - 1 for step in turns)}
        stretches = (most - len(kept)) // 2
        for number in range(stretches):
            stretch = range(number * count // stretches, (number + 1) * count // stretches)
            kept |= {min(stretch, key=held.__getitem__), max(stretch, key=held.__getitem__)}
    return sorted(kept)
