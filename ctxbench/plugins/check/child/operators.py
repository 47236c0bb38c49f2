"""The operators of a case's forward pass on meta, each with its shape and its line of source."""

import linecache

from ctxbench.model.case import Case
from ctxbench.plugins.check.wire import Operators, WrittenCall
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.predict import predict_peak


def list_operators(case: Case) -> Operators:
    """The operators in their order; none where the module cannot run on meta."""
    module, x = case.on_meta()
    try:
        found = predict_peak(module, x, mode="infer", autocast=case.autocast_dtype)
    except UnpredictableError:
        return Operators(())
    made: dict[int, tuple[int, ...]] = {}
    for block in found.allocations:
        if block.category != "weights":
            made.setdefault(block.born, block.shape)
    calls = []
    for number, step in enumerate(found.timeline):
        line = step.place.own
        text = linecache.getline(line.file, line.number).strip() if line else ""
        op = step.op.removeprefix("aten.").removesuffix(".default")
        calls.append(WrittenCall(op, made.get(number, ()), str(line or step.place), text))
    return Operators(calls)
