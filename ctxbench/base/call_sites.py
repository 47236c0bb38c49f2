"""Call sites of operators in a module: the submodule that ran, the source line, and in the backward pass the node.

Each cost is booked to such a place: memory, multiply-accumulates, predicted and measured times.
"""

import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

# What runs outside the module: the sum that is the loss of a training step.
LOSS = "the loss"
_HARNESS = Path(__file__).parents[1]
# Code of ctxbench that is a module's own where it is installed as a package.
_MODULES = tuple(f"{_HARNESS / name}{os.sep}" for name in ("modules", "networks"))
_INSIDE_A_FUNCTION = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_INSTALLED = {"site-packages", "dist-packages"}
_PYTHON = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of source code; `first` is the first line of its function. `file` need not be one, as of a notebook."""

    file: str
    number: int
    first: int = field(default=1, compare=False)

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}"


@dataclass(frozen=True, slots=True)
class CallSite:
    """`module` is the path of the submodule that ran, "" the module itself.

    `own` is the innermost line that is no library's, `inner` the innermost outside PyTorch, as of a block that is
    imported and wrapped; both are the innermost of PyTorch's layers where nobody else's code ran. `node` is the
    autograd node of what the backward pass runs, or says in a word what has no line.
    """

    module: str = ""
    own: Line | None = None
    inner: Line | None = None
    node: str = ""

    @property
    def forward(self) -> "CallSite":
        """The place of the forward call that a gradient belongs to; of a forward call itself."""
        return CallSite(self.module, self.own, self.inner)

    def gradient(self, node: str) -> "CallSite":
        """The place of an autograd node that belongs to this forward call."""
        return CallSite(self.module, self.own, self.inner, self.node or node)

    def __str__(self) -> str:
        if self.inner is None:
            return self.node
        return f"{self.node} of {self.inner}" if self.node else str(self.inner)


class CallSites:
    """Tells where the calls of one module come from: the forward ones by the stack, a backward one by the forward's."""

    def __init__(self, root: "nn.Module") -> None:
        import torch

        self._torch, self._root = torch, root
        self._names = {id(child): name for name, child in root.named_modules()}
        self._call = torch.nn.Module._call_impl.__code__
        self._library = f"{Path(torch.__file__).parent}{os.sep}"
        self._layers = os.path.join(self._library, "nn", "modules", "")
        self._forward: dict[int, CallSite] = {}  # autograd sequence number -> place

    def forward(self) -> CallSite:
        """The place of the code that runs now; an autograd node that it makes is known by it from here on."""
        place = self._of_stack(sys._getframe(1))
        # below autograd: the node of this call has its number already
        self._forward.setdefault(self._torch._C._autograd._get_sequence_nr() - 1, place)
        return place

    def backward(self) -> CallSite:
        """The place of the forward call whose gradient autograd computes now."""
        node = self._torch._C._current_autograd_node()
        if node is None:
            return CallSite(node=LOSS)
        return made_by(self._forward, node._sequence_nr()).gradient(node.name().rpartition("::")[2])

    def of_weight(self, name: str) -> CallSite:
        """The place of a parameter or buffer: the submodule that has it."""
        return CallSite(name.rpartition(".")[0], node=name)

    def _of_stack(self, frame: FrameType | None) -> CallSite:
        module = own = inner = layer = None
        while frame is not None:
            code = frame.f_code
            if code is self._call:
                running: Any = frame.f_locals.get("self")
                module = self._names.get(id(running)) if module is None else module
                if running is self._root:
                    inner = inner or layer
                    return CallSite(module or "", own or inner, inner)
            elif code.co_filename.startswith(self._library):
                if layer is None and code.co_filename.startswith(self._layers) and code.co_name == "forward":
                    layer = _line(frame)
            elif not _is_harness(code.co_filename):
                inner = inner or _line(frame)
                if own is None and not is_library(Path(code.co_filename)):
                    own = _line(frame)
            frame = frame.f_back
        return CallSite(node=LOSS)


def made_by(places: Mapping[int, CallSite], number: int) -> CallSite:
    """The forward call that made autograd's node with a number, from the calls by the number of the first they made.

    A write into a view makes two more nodes: that of the whole tensor, and the view's anew.
    """
    return next((places[each] for each in (number, number - 1, number - 2) if each in places), CallSite())


def _line(frame: FrameType) -> Line:
    function: FrameType | None = frame
    while function is not None and function.f_code.co_name in _INSIDE_A_FUNCTION:
        function = function.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno, (function or frame).f_code.co_firstlineno)


def _is_harness(file: str) -> bool:
    return file.startswith(f"{_HARNESS}{os.sep}") and not file.startswith(_MODULES)


def is_library(path: Path) -> bool:
    """Return whether a file is Python's own or of an installed package."""
    return not _INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in _PYTHON)
