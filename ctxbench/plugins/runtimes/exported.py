"""Parts shared by runtimes that take an ONNX file: the export, and its report."""

import re
import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter  # bound before a module can replace it
from typing import TYPE_CHECKING, ClassVar

from ctxbench.base import disk
from ctxbench.base.temporary import temporary_folder
from ctxbench.executions.base import Built, Execution

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.fx import Node

# The exported module; weights of more than 2 GB are beside it, in files whose names begin so.
FILE = "module.onnx"
# An operator in the text of an exporter's error, and the line of the module that called it.
_OPERATOR = re.compile(r"\b(aten|prims|torchvision)\.[\w.]+|\b(aten|prims)::\w+")
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
# The node that OpenVINO stops at, several lines down in its error; the first line of any other.
_NODE = re.compile(r"While validating ONNX node .*")
_FIRST_LINE = re.compile(r"\S.*")


class Exported(Execution):
    """A runtime for inference. Inputs of `dtypes`, contiguous, on devices of one type."""

    modes = ("infer",)
    no_training = "a deployed runtime runs inference only"
    no_memory = "the runtime allocates outside of PyTorch, and does not tell its peak"
    exports = True
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64", "float16")
    device_type: ClassVar[str] = "cpu"
    # Whether the file takes any height and width.
    dynamic: ClassVar[bool] = False

    def check(self, device: str, dtype: str, memory_format: str) -> None:
        from ctxbench.devices import Unsupported

        if sentence := self.lacking():
            raise Unsupported(sentence)
        if device.partition(":")[0] != self.device_type:
            raise Unsupported(f"{self.name} runs on {self.device_type}, not on {device}")
        if dtype not in self.dtypes:
            raise Unsupported(f"{self.name} takes {', '.join(self.dtypes)}, not {dtype}")
        if memory_format != "contiguous":
            raise Unsupported(f"{self.name} takes contiguous inputs, not {memory_format}")

    def build(self, model: "nn.Module", x: "Tensor", kept: str = "") -> Built:
        from ctxbench.devices import Unsupported

        with nullcontext(Path(kept)) if kept else temporary_folder() as folder:
            path, exported_s = folder / FILE, None
            if not path.exists():
                begin = perf_counter()
                new = folder / "new" / FILE
                disk.make_folder(new.parent)
                export(model, x, new, self.dynamic)
                exported_s = perf_counter() - begin
                for each in sorted(new.parent.iterdir(), reverse=True):  # the file itself after its weights
                    each.rename(folder / each.name)
            size = sum(each.stat().st_size for each in folder.glob(f"{FILE}*"))
            begin = perf_counter()
            try:
                forward, operators = self.open(path)
            except Exception as error:  # runtimes have classes of their own
                said = _NODE.search(str(error)) or _FIRST_LINE.search(str(error))
                reason = said[0].strip() if said else type(error).__name__
                raise Unsupported(f"{self.name} does not take the exported file: {reason}") from error
            opened_s = perf_counter() - begin
        facts = {"export_s": exported_s, "export_open_s": opened_s, "export_bytes": size, "export_operators": operators}
        return Built(forward, {name: fact for name, fact in facts.items() if fact is not None})

    @abstractmethod
    def open(self, path: Path) -> "tuple[Callable[[Tensor], Tensor], int | None]":
        """A function that runs the file, and how many operators are left of it; None if the runtime does not tell."""


def export(model: "nn.Module", x: "Tensor", path: Path, dynamic: bool = False) -> None:
    """Write a module in eval mode as ONNX, for inputs of this shape or, `dynamic`, of any height and width.

    Raises Unsupported with the operator that has no translation and the line that calls it.
    """
    import torch

    from ctxbench.devices import Unsupported

    model.eval()
    sizes = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC} if dynamic else {}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                model, (x,), dynamo=True, verbose=False, dynamic_shapes=(sizes,) if dynamic else None
            )
            assert program is not None
            program.save(str(path))
    except torch.onnx.errors.OnnxExporterError as error:
        raise Unsupported(f"cannot be exported to ONNX: {_reason(error, model, x)}") from error


def _reason(error: BaseException, model: "nn.Module", x: "Tensor") -> str:
    """The operator that has no translation and the line of the module that calls it, or what the exporter says."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    operator = _OPERATOR.search(str(first))
    if not operator:
        return f"{type(first).__name__}: {str(first).strip().partition(chr(10))[0]}"
    return f"there is no ONNX operator for {operator[0]}{_line_of(operator[0], model, x)}"


def _line_of(operator: str, model: "nn.Module", x: "Tensor") -> str:
    """` (mine.py, line 12)`: the innermost line outside of packages that calls an operator; "" if none is known."""
    import torch

    graph = torch.export.export(model, (x,), strict=False).run_decompositions().graph
    called = next((node for node in graph.nodes if str(node.target).startswith(operator)), None)
    return f" ({line})" if called and (line := line_of(called)) else ""


def line_of(node: "Node") -> str:
    """`mine.py, line 12`: the innermost line outside of packages that calls a graph's node; "" if none is known."""
    lines = [each for each in _LINE.findall(node.meta.get("stack_trace") or "") if "site-packages" not in each[0]]
    return f"{Path(lines[-1][0]).name}, line {lines[-1][1]}" if lines else ""
