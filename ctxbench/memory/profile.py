"""The result of a memory prediction: the peak, what is alive there, and what would lower it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MIB = 2**20
Category = Literal["weights", "saved for backward", "gradient", "weight gradient", "temporary", "output"]
Phase = Literal["forward", "backward"]


@dataclass(slots=True)
class Allocation:
    """One block of memory and the steps of the pass it lives through.

    It is alive from step `born` up to, not including, step `died` (None: to the end); `last_read` is the last step that
    used it. `where` is the line of the module's code, or the autograd node; `saved_by` the node that kept it.
    """

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    op: str
    category: Category
    where: str
    born: int
    died: int | None = None
    last_read: int = -1
    saved_by: str = ""

    def alive_at(self, step: int) -> bool:
        """Whether the block is held during a step."""
        return self.born <= step and (self.died is None or step < self.died)


@dataclass(slots=True)
class Step:
    """One operator call: the bytes held when it held most, its own temporaries included."""

    op: str
    phase: Phase
    live_bytes: int
    inner: tuple[int, ...] = ()
    where: str = ""


@dataclass
class MemoryProfile:
    """Predicted peak memory of one module in one mode, under `ctxbench.memory.CONVENTION`. Sizes are bytes.

    `marks` name the operators whose own temporaries are not known, with the reason; the peak is then a lower bound as
    far as they go. `workspaces` name what the device's libraries hold beside it.
    """

    module: str
    mode: str
    device: str
    peak_bytes: int
    weights_bytes: int
    timeline: list[Step]
    allocations: list[Allocation]
    marks: dict[str, str] = field(default_factory=dict)
    workspaces: dict[str, str] = field(default_factory=dict)
