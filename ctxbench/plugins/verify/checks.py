"""The checks in order, and the loop that runs them."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from ctxbench.base.errors import cut, is_interrupt
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.verify.advice import advice
from ctxbench.plugins.verify.behaviour import (
    batch_items,
    gradients,
    keeps_state,
    modes,
    reads_input,
    repeatable,
    state_dict,
)
from ctxbench.plugins.verify.contract import NO_MORE, CheckResult
from ctxbench.plugins.verify.costs import closed_forms
from ctxbench.plugins.verify.derivatives import exact_gradients
from ctxbench.plugins.verify.precision import channels_last, compiles, exports, onnx, other_dtypes
from ctxbench.plugins.verify.reach import reaches, tells_positions_apart
from ctxbench.plugins.verify.shapes import constructs, device, one_position, shape, sizes, typed
from ctxbench.plugins.verify.side_effects import global_state, quiet, replaces_nothing, restored
from ctxbench.plugins.verify.subject import Subject, at_its_size, failed, in_its_dtype

# Characters of a fact.
LONGEST = 2000


@dataclass(frozen=True)
class Check:
    """One check. Unless a `vital` one passes, no other check runs; one that is not `required` only informs.

    If a `decisive` one fails, numbers of the module would be wrong.
    """

    name: str
    run: Callable[[Subject], CheckResult]
    required: bool = True
    vital: bool = False
    decisive: bool = False


COMPILERS = (
    Check("torch.compile", compiles, required=False),
    Check("torch.export", exports, required=False),
    Check("ONNX", onnx, required=False),
)
CHECKS = (
    Check("constructs", constructs, vital=True, decisive=True),
    Check("typed hyper-parameters", typed, required=False),
    Check("shape and dtype", shape, vital=True, decisive=True),
    Check("device", device),
    Check("odd and non-square", sizes),
    Check("1x1", one_position),
    Check("batch items", batch_items, decisive=True),
    Check("gradients", gradients),
    Check("exact gradients", exact_gradients),
    Check("repeatable", repeatable, decisive=True),
    Check("reads its input", reads_input, decisive=True),
    Check("keeps its state", keeps_state, decisive=True),
    Check("state_dict", state_dict),
    Check("train and eval", modes, decisive=True),
    Check("other dtypes", other_dtypes),
    Check("channels_last", channels_last),
    Check("reach", reaches),
    Check("position mixing", tells_positions_apart, required=False),
    Check("closed forms", closed_forms),
    Check("prints nothing", quiet),
    Check("global state", global_state, decisive=True),
    Check("replaces nothing", replaces_nothing, decisive=True),
    *COMPILERS,
)


def run_checks(
    subject: Subject, checks: Sequence[Check] = CHECKS, on_start: Callable[[Check], object] = lambda check: None
) -> Iterator[CheckResult]:
    """Run the checks in this process, one result at a time; an exception of the module becomes a result.

    In one thread: on busy cores the threads of a small operation wait for each other far longer than they compute.
    """
    knows_dtype = knows_size = False
    for check in checks:
        on_start(check)
        with restored(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_num_threads(1)
            try:
                if not knows_size and check.run not in (constructs, typed):  # those have no input
                    subject, knows_size = at_its_size(subject), True
                if not knows_dtype and not check.vital and check.required:  # it has run once, in float32
                    subject, knows_dtype = in_its_dtype(subject), True
                result = check.run(subject)
            except BaseException as error:  # whatever a module raises is a result
                if is_interrupt(error):
                    raise
                result = failed(describe_failure(error).message, advice(error, subject))
        stop = check.vital and result.outcome == "failed"
        known = replace(result, name=check.name, required=check.required, decisive=check.decisive)
        yield replace(known, fact=cut(result.fact, LONGEST), hint=result.hint + NO_MORE * stop)
        if stop:
            return
