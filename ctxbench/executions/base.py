"""Interface of an execution."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ctxbench.base import extras
from ctxbench.base.mode import MODES, Mode

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ctxbench.devices import Device
    from ctxbench.devices.clock import Step


@dataclass(frozen=True)
class Built:
    """Module made ready to run: `forward` gives its output in inference; `facts` are columns of the record."""

    forward: "Callable[[Tensor], Tensor]"
    facts: Mapping[str, Any] = field(default_factory=dict)


class Execution:
    """One way. What is declared here is that of torch's eager execution."""

    name: ClassVar[str]
    # What it does, as a phrase for help and docs.
    about: ClassVar[str]
    # Its order in lists.
    order: ClassVar[int]
    modes: ClassVar[tuple[Mode, ...]] = MODES
    # Why it has no training, no peak in torch's allocator, no numeric error of its own; "" where it has.
    no_training: ClassVar[str] = ""
    no_memory: ClassVar[str] = ""
    no_error: ClassVar[str] = ""
    # Whether the first pass of a mode compiles; whether the module is exported before it. Each has a time limit.
    compiles: ClassVar[bool] = False
    exports: ClassVar[bool] = False
    # About how many seconds a process takes to compile or export a module.
    takes_s: ClassVar[float] = 0.0
    # The extra of ctxbench that brings the packages it needs.
    extra: ClassVar[str] = ""

    @property
    def has_limit(self) -> bool:
        """Return whether `compile_timeout_s` holds for the first pass of a mode and what comes before it."""
        return self.compiles or self.exports

    def lacking(self) -> str:
        """Missing packages, with the command that installs them; "" if none is missing."""
        return extras.lacking(self.name, self.extra)

    def check(self, device: str, dtype: str, memory_format: str) -> None:
        """Raise Unsupported, with what would help, where this cannot run here."""

    def load(self, model: "nn.Module") -> None:
        """Change a new module in place."""

    def build(self, model: "nn.Module", x: "Tensor", kept: str = "") -> Built:
        """Build the inference pass for inputs such as `x`. The module's weights are those of this moment.

        What was exported stays in the folder `kept`, if one is given, for the other processes of the case.
        """
        return Built(model)

    def step(self, step: "Step", device: "Device") -> "Step":
        """Timed step, made of a pass."""
        return step
