"""Messages of the process that times kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The name of the control workload among kernels.
CONTROL = "control"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of a kernel or of the control workload, in milliseconds.

    Meanwhile others used `others_share` of the cores, and the thread that computed had one for `on_core` of the time.
    """

    name: str
    ms: float
    others_share: float = 0.0
    on_core: float = 1.0


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """Properties of a GPU by its driver: processors, clocks in kHz, the memory's width in bits, L2 in bytes.

    `other_processes` compute on it too; none where that is not known.
    """

    values: Mapping[str, int]
    other_processes: Sequence[int] = ()
