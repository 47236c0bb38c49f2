"""Outputs of a case from the same weights and input: kept by one side of a check, compared by the other."""

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.base.errors import UsageError
from ctxbench.model.case import Case, Measure
from ctxbench.model.failures import describe_failure
from ctxbench.model.messages import Failure
from ctxbench.plugins.check.child.code import imported_code
from ctxbench.plugins.check.child.right import OF_INPUT, OF_PARAMETERS, SEED, whose_is_right
from ctxbench.plugins.check.wire import Agreement, Difference
from ctxbench.plugins.precision.metric import draw, relative_error
from ctxbench.worker.measurement import CaseMeasurement

Parts = dict[str, Tensor]
# Euclidean, relative: what sums in another order make. Two layouts of the registry's modules differ by 2e-12 at most in
# float64; in float32 by 1.6e-3, where a ReLU turns.
ROUNDING = {torch.float64: 1e-9, torch.float32: 5e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
# In the case's own dtype, so many times the baseline's distance from float64 is rounding, too.
OWN_ERROR = 4.0
EXACT = "float64"


def take_outputs(case: Case, measure: Measure, path: str, compare: bool) -> Agreement | Failure | None:
    """Write what the case computes into the file `path`; or, to `compare`, tell how it differs from what is there.

    The one that compares has the weights of the one that wrote if they have the same names and shapes.
    """
    try:
        return _taken(case, measure, path, compare)
    except UsageError as error:
        return describe_failure(error)


def _taken(case: Case, measure: Measure, path: str, compare: bool) -> Agreement | None:
    measurement = CaseMeasurement(case, measure, lambda message: None, force=True)
    measurement.load()
    model, _ = draw(measurement)
    drawn = {name: tensor.detach().clone() for name, tensor in _state(model)}
    if not compare:
        found = _computed(measurement, model)
        again = _computed(measurement, model)
        noise = {each: {part: _moved(again[each][part], found[each][part]) for part in found[each]} for each in found}
        torch.save({"drawn": drawn, "found": found, "noise": noise, "code": imported_code(Path.cwd())}, path)
        return None
    kept = torch.load(path, weights_only=True)
    notes = []
    own_weights = _shapes(drawn) != _shapes(kept["drawn"])
    if not own_weights and not all(
        torch.equal(tensor, kept["drawn"][name].to(tensor)) for name, tensor in drawn.items()
    ):
        notes.append("other initial weights from the same seed, compared with the baseline's")
        with torch.no_grad():
            for name, tensor in _state(model):
                tensor.copy_(kept["drawn"][name])
    now = _computed(measurement, model)
    agreement = _agreement(kept["found"], now, kept["noise"], notes, measurement, own_weights)
    moved = {each.part for each in agreement.differences if each.dtype == EXACT and each.share > each.bound}
    if moved and moved <= {OF_INPUT, OF_PARAMETERS}:
        right = whose_is_right(
            copy.deepcopy(model), _input(measurement), case.entry.stops(case.hparams), kept["found"][EXACT], now[EXACT]
        )
        agreement = replace(agreement, right=right)
    code = imported_code(Path.cwd())
    return replace(agreement, same_code=bool(code) and code == kept["code"])


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}


def _state(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _computed(measurement: CaseMeasurement, model: nn.Module) -> dict[str, Parts]:
    """Outputs of the module in the case's dtype and, if it can, in float64."""
    case, found, x = measurement.case, {}, _input(measurement)
    if case.dtype != EXACT:
        with suppress(Exception):  # what fixes a dtype of its own is compared in that alone
            found[EXACT] = _parts(model, case.laid_out(x), torch.float64, nullcontext)
    found[case.dtype] = _parts(model, case.laid_out(x), case.parameter_dtype, measurement.autocast)
    return found


def _input(measurement: CaseMeasurement) -> Tensor:
    """The same values in each dtype."""
    case, generator = measurement.case, torch.Generator().manual_seed(measurement.settings.seed + 1)
    return torch.randn(case.shape, generator=generator).to(case.parameter_dtype).to(measurement.device.torch)


def _parts(
    drawn: nn.Module, x: Tensor, dtype: torch.dtype, context: Callable[[], AbstractContextManager[Any]]
) -> Parts:
    """The output, and of a training step the output, the gradients of a randomly weighted sum, and the buffers."""
    model, leaf = copy.deepcopy(drawn).to(dtype), x.to(dtype).requires_grad_()

    def forward(train: bool) -> Tensor:
        torch.manual_seed(SEED)
        model.train(train)
        with context():
            y: Tensor = model(leaf.clone())  # a module may write into its input
        return y

    with torch.no_grad():
        found = {"output": forward(train=False)}
    y = found["output in training"] = forward(train=True)
    buffers = [tensor.double().flatten() for _, tensor in model.named_buffers() if tensor.is_floating_point()]
    if buffers:
        found["buffers after training"] = torch.cat(buffers)
    if y.requires_grad:
        weights = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED)).to(y.device)
        inputs = [leaf, *(each for each in model.parameters() if each.requires_grad)]
        gradients = torch.autograd.grad((y.double() * weights).sum(), inputs, materialize_grads=True)
        found[OF_INPUT] = gradients[0]
        if len(inputs) > 1:
            found[OF_PARAMETERS] = torch.cat([each.double().flatten() for each in gradients[1:]])
    return {part: tensor.detach().clone() for part, tensor in found.items()}


def _moved(now: Tensor, before: Tensor) -> float:
    """The relative error, or 1 beside zeros."""
    return relative_error(now, before.to(now.device)) if before.any() else float(now.any())


def _agreement(
    before: Mapping[str, Parts],
    now: Mapping[str, Parts],
    noise: Mapping[str, Mapping[str, float]],
    notes: list[str],
    measurement: CaseMeasurement,
    own_weights: bool,
) -> Agreement:
    """Agreement of present and earlier outputs, part by part, in each dtype that both sides ran in."""
    differences, broken = [], []
    own = measurement.case.autocast_dtype or measurement.case.parameter_dtype
    for dtype in (each for each in before if each in now):
        for part, then in before[dtype].items():
            value, bound = now[dtype].get(part), ROUNDING[torch.float64 if dtype == EXACT else own]
            if not torch.isfinite(then).all():
                continue
            if value is None or (value.shape != then.shape and not part.startswith("output")):
                notes.append(f"other {part}")
            elif value.shape != then.shape:
                broken.append(f"the {part} has the shape {[*value.shape]}, it had {[*then.shape]}")
            elif not torch.isfinite(value).all():
                broken.append(f"the {part} holds NaN or infinity in {dtype}")
            else:
                bound = max(bound, OWN_ERROR * _moved(then, before.get(EXACT, before[dtype])[part]))
                differences.append(Difference(part, dtype, _moved(value, then), bound, noise[dtype][part]))
    case = measurement.case.dtype
    then_dtype, now_dtype = (str(each[case]["output"].dtype).removeprefix("torch.") for each in (before, now))
    if then_dtype != now_dtype:
        notes.append(f"an output in {now_dtype}, not in {then_dtype}")
    return Agreement(differences, list(dict.fromkeys(broken)), list(dict.fromkeys(notes)), own_weights)
