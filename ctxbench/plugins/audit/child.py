"""Counts for an audit of published figures: a case's parameters, MACs and peak memory, in parts."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from ctxbench.base.mode import MODES, Mode
from ctxbench.metrics.params import count_params
from ctxbench.model.case import Case, Measure
from ctxbench.plugins.audit.conventions import TOOLS
from ctxbench.plugins.audit.counts import BlockCounts
from ctxbench.plugins.audit.roles import Roles, is_vector, roles_of
from ctxbench.plugins.macs.counter import MacCount, counted
from ctxbench.plugins.macs.metric import step_macs
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import reading
from ctxbench.plugins.macs.watch import UncountableError
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.kernels import MemoryDevice
from ctxbench.plugins.memory.metric import pass_of
from ctxbench.worker.measurement import CaseMeasurement

# Operators that multiply by weights alone, as layers call them.
LAYERS = ("aten::convolution", "aten::_convolution", "aten::addmm", "aten::mm")


def count_case(case: Case, names: Sequence[str]) -> BlockCounts:
    """Count these of a case, on the meta device; names are those of `recounted.COUNTS` and of TOOLS.

    `missing` says of the rest why it cannot be known.
    """
    parts = _Parts(case)
    values: dict[str, int] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            values[name] = parts.count(name)
        except (UncountableError, UnpredictableError) as error:
            missing[name] = str(error)
    return BlockCounts(values, missing)


class _Parts:
    """The module of a case, each count made when it is asked for."""

    def __init__(self, case: Case) -> None:
        self._measurement = CaseMeasurement(case, Measure(), lambda message: None)
        self._model, self._x = self._measurement.on_meta
        self._known: dict[str, Callable[[], int]] = {
            "params": lambda: count_params(self._model),
            "params_bias": lambda: self._roles.bias,
            "params_norm": lambda: self._roles.norm,
            "params_vectors": lambda: self._roles.vectors,
            "params_matrices": lambda: sum(each.numel() for each in self._model.parameters() if not is_vector(each)),
            "buffers": lambda: sum(each.numel() for each in self._model.buffers() if each.is_floating_point()),
            "macs": lambda: self._macs.macs,
            "macs_matmul": lambda: self._macs.macs_matmul,
            "macs_layers": lambda: sum(self._macs.by_operator.get(each, 0) for each in LAYERS),
            "macs_norm": lambda: sum(macs for each, macs in self._macs.by_operator.items() if each.endswith("_norm")),
            "macs_train": lambda: step_macs(self._measurement).macs,
        }
        self._calls = Calls(self._model, self._x.shape)
        for tool, name in TOOLS["macs"].items():
            self._known[name] = partial(reading(tool).count, self._calls)
        for tool, name in TOOLS["params"].items():
            self._known[name] = partial(self._params, tool)
        for mode in MODES:
            self._known[f"memory_{mode}"] = partial(self._peak, mode, "cuda")
            self._known[f"memory_{mode}_2020"] = partial(self._peak, mode, "cuda-2020")

    def _peak(self, mode: Mode, device: MemoryDevice) -> int:
        return pass_of(self._measurement, mode, device).allocated_bytes

    def _params(self, tool: str) -> int:
        found = reading(tool).params(self._calls)
        if found is None:
            raise UncountableError(f"{tool} prints no number of parameters")
        return found

    def count(self, name: str) -> int:
        return self._known[name]()

    @cached_property
    def _macs(self) -> MacCount:
        return counted(self._calls.operators)

    @cached_property
    def _roles(self) -> Roles:
        return roles_of(self._calls)
