"""Call sites of operators in a module: the submodule that ran, the source line, and in the backward pass the node.

Each cost is booked to such a place: memory, multiply-accumulates, predicted and measured times.
"""

import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ctxbench.plugin import elsewhere

if TYPE_CHECKING:
    from torch import nn

# What runs outside the module: the sum that is the loss of a training step.
LOSS = "the loss"
# What the backward pass computes again, as a checkpoint does.
AGAIN = "again"
# What gives a block of tokens, or of channels-last maps, its layout: the code around it, which is in `_LAYOUT`.
WRAPPER = "the wrapper's layout"
_HARNESS = Path(__file__).parents[1]
_LAYOUT = str(_HARNESS / "registry" / "layout.py")
# Code of ctxbench that is a module's own where it is installed as a package.
_MODULES = tuple(f"{_HARNESS / name}{os.sep}" for name in ("modules", "networks"))
_INSIDE_A_FUNCTION = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
INSTALLED = {"site-packages", "dist-packages"}
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
    """Tells where the calls of one module come from: the forward ones by the stack, a backward one by the forward's.

    `by_forward` are the submodules whose `forward` was called in place of the module itself, which skips its hooks.
    """

    def __init__(self, root: "nn.Module") -> None:
        import torch
        import torch.autograd.graph

        self.by_forward: set[str] = set()
        self._torch, self._root = torch, root
        self._names = {id(child): name for name, child in root.named_modules()}
        self._call = torch.nn.Module._call_impl.__code__
        self._engine = torch.autograd.graph._engine_run_backward.__code__
        self._library = f"{Path(torch.__file__).parent}{os.sep}"
        self._layers = os.path.join(self._library, "nn", "modules", "")
        self._module = os.path.join(self._layers, "module.py")
        self._checkpoint = os.path.join(self._library, "utils", "checkpoint.py")
        self._forward: dict[int, CallSite] = {}  # autograd sequence number -> place

    def forward(self) -> CallSite:
        """The place of the code that runs now; an autograd node that it makes is known by it from here on."""
        place = self.at(sys._getframe(1)) or CallSite(node=LOSS)
        self._note(place)
        return place

    def backward(self) -> CallSite:
        """The place of the forward call whose gradient autograd computes now, or that is computed again for it."""
        node = self._torch._C._current_autograd_node()
        if node is None:
            return CallSite(node=LOSS)
        return self.again() or made_by(self._forward, node._sequence_nr()).gradient(node.name().rpartition("::")[2])

    def again(self) -> CallSite | None:
        """The place of the code that runs now if the backward pass computes a part of the forward pass again.

        A checkpoint does so, and a backward pass of a person's own that calls a submodule.
        """
        node = self._torch._C._current_autograd_node()
        stack = self._stack(sys._getframe(1), self._engine)
        if node is None or not (stack.module is not None or (stack.is_checkpoint and stack.inner)):
            return None
        around = made_by(self._forward, node._sequence_nr()).module if stack.owner is None else stack.owner
        module = around if stack.module is None else stack.module
        place = CallSite(module, stack.own or stack.inner, stack.inner)
        self._note(place)
        return place.gradient(AGAIN)

    def of_weight(self, name: str) -> CallSite:
        """The place of a parameter or buffer: the submodule that has it."""
        return CallSite(name.rpartition(".")[0], node=name)

    def at(self, frame: FrameType | None) -> CallSite | None:
        """The place of a frame within a call of the module; None outside."""
        stack = self._stack(frame)
        if stack.is_wrapper:
            return CallSite(node=WRAPPER)
        return CallSite(stack.module or "", stack.own or stack.inner, stack.inner) if stack.is_within else None

    def in_backward(self, frame: FrameType | None) -> Line | None:
        """The innermost line of a person's own code that the backward pass runs in a frame; None outside of one."""
        stack = self._stack(frame, self._engine)
        return stack.own if stack.is_in_backward else None

    def _note(self, place: CallSite) -> None:
        # below autograd: the node of this call has its number already
        self._forward.setdefault(self._torch._C._autograd._get_sequence_nr() - 1, place)

    def _stack(self, frame: FrameType | None, end: CodeType | None = None) -> "_Stack":
        """The frames from the innermost to a call of the module, to one of the code `end`, or all."""
        found = _Stack()
        called: Any = None  # whose `forward` runs, perhaps called as such
        while frame is not None and frame.f_code is not end and not found.is_within:
            code, file = frame.f_code, frame.f_code.co_filename
            if (running := self._running(frame)) is not None:
                if called is not None and called is not running:
                    self.by_forward.add(self._names[id(called)])
                called = None if code is self._call else running
                found.module = found.module if found.module is not None else self._names.get(id(running))
                found.is_within = code is self._call and running is self._root
            if file.startswith(self._library):
                found.is_checkpoint = found.is_checkpoint or file == self._checkpoint
                if found.layer is None and file.startswith(self._layers) and code.co_name == "forward":
                    found.layer = _line(frame)
            elif file == _LAYOUT and found.inner is None and found.layer is None:
                found.is_wrapper = True
                break
            elif not is_harness(file):
                found.inner = found.inner or _line(frame)
                if found.own is None and not is_library(file):
                    found.own = _line(frame)
                if end is not None and found.owner is None:
                    found.owner = self._names.get(id(_self_of(frame)))
            frame = frame.f_back
        found.is_in_backward = frame is not None and frame.f_code is self._engine
        found.inner = found.inner or found.layer
        return found

    def _running(self, frame: FrameType) -> Any:
        """The module whose call a frame is, or whose `forward` if something else than a call runs it; else None."""
        if frame.f_code is self._call:
            return frame.f_locals.get("self")
        if frame.f_code.co_name != "forward" or (frame.f_back and frame.f_back.f_code.co_filename == self._module):
            return None
        found = _self_of(frame)
        return found if id(found) in self._names else None


@dataclass(slots=True)
class _Stack:
    """Findings in the frames of a call; `owner` is the submodule whose own function, not `forward`, runs."""

    module: str | None = None
    owner: str | None = None
    own: Line | None = None
    inner: Line | None = None
    layer: Line | None = None
    is_within: bool = False
    is_in_backward: bool = False
    is_wrapper: bool = False
    is_checkpoint: bool = False


def made_by(places: Mapping[int, CallSite], number: int) -> CallSite:
    """The forward call that made autograd's node with a number, from the calls by the number of the first they made.

    A write into a view makes two more nodes: that of the whole tensor, and the view's anew.
    """
    return next((places[each] for each in (number, number - 1, number - 2) if each in places), CallSite())


def _self_of(frame: FrameType) -> Any:
    """The `self` of a function."""
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return None
    names = frame.f_locals
    found = names.get("self")
    if isinstance(names, dict):  # before Python 3.13 a copy, which would keep tensors that the function has dropped
        names.clear()
    return found


def _line(frame: FrameType) -> Line:
    function: FrameType | None = frame
    while function is not None and function.f_code.co_name in _INSIDE_A_FUNCTION:
        function = function.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno, (function or frame).f_code.co_firstlineno)


@cache
def is_harness(file: str) -> bool:
    """Return whether a file is of ctxbench or of its plugins, and not of what they measure."""
    folders = tuple(f"{folder}{os.sep}" for folder in (_HARNESS, *elsewhere().values()))
    return file.startswith(folders) and not file.startswith(_MODULES)


@cache
def is_library(file: str | Path) -> bool:
    """Return whether a file is Python's own or of an installed package."""
    path = Path(file)
    return not INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in _PYTHON)
