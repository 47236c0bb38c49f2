"""Clock interface: times a block of passes and reads the elapsed time."""

from collections.abc import Callable
from typing import Protocol

Step = Callable[[], object]
# A block lasts this many times what timing it costs, so that the clock adds under 0.1 %.
COST_RATIO = 1000


class Clock(Protocol):
    """Times blocks of passes and says how much wall time has gone by."""

    def time_block(self, step: Step, passes: int) -> float:
        """Run `step` `passes` times; seconds for the whole block."""
        ...

    def now(self) -> float:
        """Wall time in seconds from an arbitrary start."""
        ...


def block_cost(clock: Clock) -> float:
    """Seconds that timing an empty block takes on this clock: the least of twenty tries."""
    return min(clock.time_block(lambda: None, 0) for _ in range(20))
