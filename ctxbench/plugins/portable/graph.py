"""The operators of an exported module, with their lines, and the one that an error is about."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ctxbench.plugins.runtimes.exported import line_of

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.fx import Graph, Node

# Parts of names in errors, for operators that have another name in PyTorch.
_ALIASES = {
    "sort": ("topk", "sort", "argsort", "msort"),
    **dict.fromkeys(
        ("dft", "fft"), ("fft_rfft2", "fft_fft2", "fft_irfft2", "fft_ifft2", "_fft_r2c", "_fft_c2r", "_fft_c2c")
    ),
}
# What calls a part that an accelerator takes, in a lowered graph of ExecuTorch.
_DELEGATE = "executorch_call_delegate"
# A name: behind one of these words, in quotes, or with an underscore, which no word of English has.
_NAME = re.compile(r"(?:aten(?:\.|::)|\b(?:node|op|kind|operator) ['\"]?)(\w+)|['\"](\w+)['\"]|\b(\w*[A-Za-z0-9]_\w+)")
_NUMBER = re.compile(r"_\d+$")
_RANK = re.compile(r"\brank\b", re.IGNORECASE)


@dataclass(frozen=True)
class GraphCall:
    """A call of an operator: its name without namespace and overload, its line, the rank of its output."""

    operator: str
    line: str
    rank: int

    def __str__(self) -> str:
        return f"{self.operator} ({self.line})" if self.line else self.operator


def calls_of(graph: "Graph") -> Iterator[GraphCall]:
    """The calls of a graph in order, without those that only take a result apart."""
    for node in graph.nodes:
        name = getattr(node.target, "__name__", str(node.target))
        if node.op == "call_function" and name != "getitem":
            yield GraphCall(_plain(name), line_of(node), _rank(node))


def _plain(name: str) -> str:
    """`grid_sampler_2d` of `aten.grid_sampler_2d.default` and of `grid_sampler_2d.default`."""
    return name.removeprefix("aten.").partition(".")[0]


def _rank(node: "Node") -> int:
    value: Any = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return max((len(each.shape) for each in values if hasattr(each, "shape")), default=0)


def outside_of(calls: Sequence[GraphCall]) -> tuple[list[str], int]:
    """Operators outside of the accelerator, and in how many parts the graph runs: its own, and stretches of these."""
    is_inside = [call.operator == _DELEGATE for call in calls]
    outside = [str(call) for call, inside in zip(calls, is_inside, strict=True) if not inside]
    return outside, sum(is_inside) + [inside for inside, _ in groupby(is_inside)].count(False)


def litert_calls(content: bytes) -> list[GraphCall]:
    """The operators of a LiteRT file, which has no lines; the rank is the largest of their inputs and outputs."""
    from ai_edge_litert import schema_py_generated as schema

    names = {number: name for name, number in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    model: Any = schema.Model.GetRootAs(content)
    codes: list[Any] = [
        schema.OperatorCodeT.InitFromObj(model.OperatorCodes(i)) for i in range(model.OperatorCodesLength())
    ]
    operators = [names[max(code.builtinCode, code.deprecatedBuiltinCode)] for code in codes]  # by the file's age
    graph: Any = schema.SubGraphT.InitFromObj(model.Subgraphs(0))
    ranks = [0 if tensor.shape is None else len(tensor.shape) for tensor in graph.tensors]
    return [
        GraphCall(operators[each.opcodeIndex], "", max(ranks[i] for i in (*each.inputs, *each.outputs) if i >= 0))
        for each in graph.operators
    ]


def exported_calls(model: "nn.Module", x: "Tensor") -> list[GraphCall]:
    """The calls of a module as exported, then those of its decomposition; none where it cannot be exported."""
    import torch

    try:
        program = torch.export.export(model, (x,), strict=False)
        return [*calls_of(program.graph), *calls_of(program.run_decompositions().graph)]
    except Exception:  # the error that is to be explained says why
        return []


def blamed(text: str, calls: Sequence[GraphCall], most_rank: int) -> GraphCall | None:
    """The first call that an error's text names, or of a higher rank than `most_rank` where it speaks of a rank."""
    if _RANK.search(text) and (call := next((call for call in calls if call.rank > most_rank), None)):
        return call
    names = {_NUMBER.sub("", name) for found in _NAME.findall(text) for name in found if name}
    parts = {part for name in names for part in name.lower().split("_")}
    names |= {other for part, others in _ALIASES.items() if part in parts for other in others}
    return next((call for call in calls if call.operator in names), None)
