"""Each operator of PyTorch's own list of tests: its predicted peak beside the measured one, on the CPU without oneDNN.

    python research/operator_sweep.py [OPERATOR ...] [--write results/operators.csv.gz]

An operator stands in the list of `torch.testing._internal` with samples of its arguments. Of each, up to SAMPLES are
taken as they are, and again so large that a tensor has more than a mebibyte; forward, and forward and backward; in each
of DTYPES. Printed are the cases whose prediction differs from the measured peak and has no mark.
"""

import argparse
import gc
import math
import multiprocessing
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_flatten, tree_unflatten

from ctxbench.base.mode import MODES, Mode
from ctxbench.devices.cpu import quiet_kineto
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.measure import measure_peak
from ctxbench.plugins.memory.one_pass import prepared, run_pass
from ctxbench.plugins.memory.predict import predict_peak

# The list's own wrapper of operators with random numbers holds the generator's state.
common_methods_invocations.wrapper_set_seed = lambda operator, *args, **kwargs: operator(*args, **kwargs)
gc.freeze()  # the list holds so many objects that each later collection would be slow

# dtype of the samples, dtype of autocast
DTYPES: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "float32": (torch.float32, None),
    "bfloat16": (torch.bfloat16, None),
    "float16": (torch.float16, None),
    "autocast-bfloat16": (torch.float32, torch.bfloat16),
}
SAMPLES = 2
# Of so many operators a process takes the cases.
OPERATORS = 10
VERDICTS = ("right", "marked", "refused", "wrong")
LARGE_BYTES = 2**20 + 1
# A sample that needs more than this is left out.
MOST_BYTES = 2**26
# Their large sample takes minutes and gigabytes, or overflows PyTorch's stack.
ONLY_SMALL = frozenset(("nn.functional.bilinear", "linalg.householder_product", "unbind_copy", "_segment_reduce"))


class Called(nn.Module):
    """An operator with its arguments, of which the tensors are the inputs; several outputs are summed to one number."""

    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        super().__init__()
        leaves, self.tree = tree_flatten(arguments)
        self.fixed = tuple(None if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        self.places = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor))
        self.function = function

    def outputs(self, *tensors: Tensor) -> list[Tensor]:
        """The outputs of the operator that are tensors."""
        leaves = list(self.fixed)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self.tree)
        return _tensors(self.function(*args, **kwargs))

    def forward(self, *tensors: Tensor) -> Tensor:
        found = self.outputs(*tensors)
        real = [torch.view_as_real(each) if each.is_complex() else each for each in found]
        trained = [each for each in real if each.requires_grad] or real
        return trained[0] if len(trained) == 1 else sum((each.sum() for each in trained[1:]), trained[0].sum())


class UnderAutocast(nn.Module):
    """PyTorch's own autocast on the CPU around a forward pass."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module, self.dtype = module, dtype

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            out: Tensor = self.module(*inputs)
        return out


@dataclass(frozen=True)
class Case:
    """An operator with its arguments, in one dtype."""

    operator: str
    dtype: str
    function: Callable[..., Any]
    arguments: Any

    @property
    def tensors(self) -> list[Tensor]:
        """New leaves with the values of the sample."""
        return [
            each.detach().clone(memory_format=torch.preserve_format).requires_grad_(each.requires_grad)
            for each in tree_flatten(self.arguments)[0]
            if isinstance(each, Tensor)
        ]


@dataclass(frozen=True)
class Outcome:
    """A case in one mode: predicted bytes, or the reason why there are none; marks; measured bytes.

    `others` are operators that the prediction has seen and that PyTorch has not run.
    """

    case: Case
    mode: Mode
    predicted: int | None
    marks: dict[str, str]
    measured: int
    others: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """One of VERDICTS."""
        if self.predicted is None:
            return "refused"
        return "marked" if self.marks else "right" if self.predicted == self.measured else "wrong"

    def __str__(self) -> str:
        shapes = [list(each.shape) for each in self.case.tensors]
        about = f"{self.case.operator} {shapes} {self.case.dtype}, {self.mode}"
        return f"{about}: predicted {self.predicted}, measured {self.measured} {self.marks}"


def operators() -> list[Any]:
    """The entries of PyTorch's list that have a gradient and take float32."""
    return [
        each
        for each in common_methods_invocations.op_db
        if each.supports_autograd and torch.float32 in each.supported_dtypes("cpu")
    ]


def title(entry: Any) -> str:
    """`max.reduction_with_dim`: the operator and the variant of its test."""
    return ".".join(filter(None, (entry.name, entry.variant_test_name)))


def cases(entry: Any, dtype: str) -> Iterator[Case]:
    """The samples of an entry in a dtype, each as it is and large."""
    given, _ = DTYPES[dtype]
    if given not in entry.supported_backward_dtypes("cpu"):
        return
    torch.manual_seed(0)
    found = []
    for sample in entry.sample_inputs("cpu", given, requires_grad=True):
        arguments = ((sample.input, *sample.args), sample.kwargs)
        tensors = _tensors(arguments)
        is_dense = all(each.numel() and each.layout is torch.strided for each in tensors)
        if is_dense and any(each.dim() for each in tensors):
            found.append(arguments)
    steps = min(SAMPLES, len(found))
    for arguments in (found[round(i * (len(found) - 1) / max(1, steps - 1))] for i in range(steps)):
        yield Case(title(entry), dtype, entry.op, arguments)
        if entry.name in ONLY_SMALL:
            continue
        if (large := enlarged(entry.op, arguments)) is not None:
            yield Case(title(entry), dtype, entry.op, large)


def enlarged(function: Callable[..., Any], arguments: Any) -> Any:
    """The arguments, repeated along the first dimension in which the operator still runs; None if there is none."""
    leaves, tree = tree_flatten(arguments)
    widest = max((each for each in leaves if isinstance(each, Tensor)), key=Tensor.numel)
    times = math.ceil(LARGE_BYTES / widest.nbytes) if widest.nbytes else 1
    for place in range(-1, widest.dim()):
        more = [_repeated(each, widest, place, times) if isinstance(each, Tensor) else each for each in leaves]
        large = tree_unflatten(more, tree)
        if _runs(function, large):
            return large
    return None


def _repeated(tensor: Tensor, widest: Tensor, place: int, times: int) -> Tensor:
    """Repeat along a dimension, if the tensor has it as the widest one; -1: along a new first one."""
    if place < 0:
        more = tensor.detach().expand(times, *tensor.shape).clone() if tensor.dim() == widest.dim() else tensor.detach()
    elif tensor.dim() > place and tensor.shape[place] == widest.shape[place]:
        more = torch.cat([tensor.detach()] * times, dim=place)
    else:
        more = tensor.detach()
    return more.requires_grad_(tensor.requires_grad)


def _runs(function: Callable[..., Any], arguments: Any) -> bool:
    """Return whether an operator takes these arguments, in memory that this machine has."""
    module = Called(function, arguments)
    try:
        with torch.no_grad():
            meta = [each.to("meta") for each in _tensors(arguments)]
            if sum(each.untyped_storage().nbytes() for each in module.outputs(*meta)) > MOST_BYTES:
                return False
            # an expanded output has many more numbers than bytes
            return all(each.numel() <= MOST_BYTES for each in module.outputs(*_tensors(arguments)))
    except Exception:  # PyTorch's operators raise errors of many classes
        return False


def _tensors(arguments: Any) -> list[Tensor]:
    return [each for each in tree_flatten(arguments)[0] if isinstance(each, Tensor)]


def outcome(case: Case, mode: Mode) -> Outcome | None:
    """Predict and measure a case; None where PyTorch itself cannot run it."""
    _, autocast = DTYPES[case.dtype]
    module = Called(case.function, case.arguments)
    real = UnderAutocast(module, autocast) if autocast else module
    try:
        measured = measure_peak(real, *case.tensors, mode=mode)
        ran = _ran(real, case, mode)
    except Exception:  # as above: no gradient for this sample, no kernel in this dtype
        return None
    try:
        profile = predict_peak(module, *case.tensors, mode=mode, device="cpu", autocast=autocast)
    except UnpredictableError as error:
        return Outcome(case, mode, None, {"": str(error)}, measured)
    seen = {step.op.split(".")[1].removesuffix("_") for step in profile.timeline}
    return Outcome(case, mode, profile.allocated_bytes, profile.marks, measured, tuple(sorted(seen - ran)))


def _ran(module: nn.Module, case: Case, mode: Mode) -> set[str]:
    """The names of all operators that PyTorch runs without a mode, those inside others too."""
    tensors = case.tensors
    with prepared(module, mode), quiet_kineto(), torch.autograd.profiler.profile() as profiler:
        run_pass(module, tuple(tensors), mode)
    names = (event.name() for event in profiler.kineto_results.events())
    return {name.rpartition("::")[2].removesuffix("_") for name in names}


def swept(entry: Any, dtype: str) -> Iterator[Outcome]:
    """All outcomes of an operator in a dtype."""
    for case in cases(entry, dtype):
        for mode in MODES:
            found = outcome(case, mode)
            if found is not None:
                yield found


@contextmanager
def plain_kernels() -> Iterator[None]:
    """One thread; without oneDNN and NNPACK, whose blocks depend on the processor."""
    torch.set_num_threads(1)
    torch.backends.nnpack.set_flags(False)
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def row(entry: Any, dtype: str, found: Sequence[Outcome]) -> dict[str, Any]:
    """Number of outcomes of an operator in a dtype with each verdict."""
    counts = Counter(each.verdict for each in found)
    return {"operator": title(entry), "dtype": dtype, **{verdict: counts[verdict] for verdict in VERDICTS}}


def _of_operator(place: int) -> tuple[list[dict[str, Any]], list[str], int]:
    """Counts of the operator at a place of the list, a row for each dtype; a line for each outcome that is wrong.

    Last, in how many cases the prediction has seen operators that PyTorch does not run.
    """
    entry = operators()[place]
    with plain_kernels():
        found = {dtype: list(swept(entry, dtype)) for dtype in DTYPES}
    outcomes = [one for each in found.values() for one in each]
    wrong = [str(each) for each in outcomes if each.verdict == "wrong"]
    return (
        [row(entry, dtype, each) for dtype, each in found.items()],
        wrong,
        sum(bool(each.others) for each in outcomes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operator", nargs="*", help="such as max.reduction_with_dim; default: all")
    parser.add_argument("--write", metavar="FILE", help="the counts, as CSV")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [title(each) for each in operators()]
    places = [place for place, name in enumerate(names) if not options.operator or name in options.operator]
    rows, others = [], Counter[str]()
    # What operators leave behind adds up, so that one process for all gets slow and overflows its stack.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=OPERATORS) as pool:
        for place, (counts, wrong, seen) in zip(places, pool.map(_of_operator, places), strict=True):
            rows += counts
            others[names[place]] += seen
            print(*(f"{line}\n" for line in wrong), sep="", end="", flush=True)
    print(", ".join(f"{sum(each[verdict] for each in rows)} {verdict}" for verdict in VERDICTS))
    print(f"In {others.total()} cases the prediction has seen an operator that PyTorch does not run: {dict(+others)}")
    if options.write:
        pd.DataFrame(rows).to_csv(options.write, index=False)


if __name__ == "__main__":
    main()
