"""Outputs of a case from the same weights and input: kept by one side of a check, compared by the other."""

import copy
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench.base.errors import UsageError
from ctxbench.base.texts import listed
from ctxbench.model.case import Case, Measure
from ctxbench.model.failures import describe_failure
from ctxbench.model.messages import Failure
from ctxbench.plugins.check.child.code import imported_code
from ctxbench.plugins.check.child.right import OF_INPUT, OF_PARAMETERS, SEED, Parts, Tensors, whose_is_right
from ctxbench.plugins.check.child.weights import (
    MOST_NAMES,
    OTHER_DRAW,
    counterparts,
    drawn,
    sentences,
    share,
    weights_of,
)
from ctxbench.plugins.check.wire import Agreement, Difference
from ctxbench.plugins.precision.metric import draw_zeros, relative_error
from ctxbench.worker.measurement import CaseMeasurement

OF_BUFFERS = "buffers after training"
# Euclidean, relative: what sums in another order make. Two layouts of the registry's modules differ by 2e-12 at most in
# float64; in float32 by 1.6e-3, where a ReLU turns.
ROUNDING = {torch.float64: 1e-9, torch.float32: 5e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
# In the case's own dtype, so many times the baseline's distance from float64 is rounding, too.
OWN_ERROR = 4.0
EXACT = "float64"


def take_outputs(case: Case, measure: Measure, path: str, compare: bool) -> Agreement | Failure | None:
    """Write what the case computes into the file `path`; or, to `compare`, tell how it differs from what is there.

    The one that compares has the weights of the one that wrote, as far as both have them.
    """
    try:
        return _taken(case, measure, path, compare)
    except UsageError as error:
        return describe_failure(error)


def _taken(case: Case, measure: Measure, path: str, compare: bool) -> Agreement | None:
    measurement = CaseMeasurement(case, measure, lambda message: None, force=True)
    measurement.load()
    model = _built(measurement)
    initial = weights_of(model)
    draw_zeros(model)
    weights = weights_of(model.to(measurement.device.torch))
    by_seed = drawn(initial, weights_of(_built(measurement, 1)))
    saved = {name: each.shape for name, each in model.state_dict().items() if isinstance(each, Tensor)}
    if not compare:
        found = _computed(measurement, model)
        again = _computed(measurement, model)
        noise = {each: {part: _moved(again[each][part], found[each][part]) for part in found[each]} for each in found}
        kept = {
            "weights": weights,
            "initial": initial,
            "saved": saved,
            "drawn": [*by_seed],
            "found": found,
            "noise": noise,
        }
        torch.save({**kept, "code": imported_code(Path.cwd())}, path)
        return None
    kept = torch.load(path, weights_only=True)
    same = counterparts(*({name: each.shape for name, each in side.items()} for side in (kept["weights"], weights)))
    share(model, kept["weights"], same, by_seed & {same[old] for old in kept["drawn"] if old in same})
    redrawn = any(not torch.equal(initial[name], kept["initial"][old].to(initial[name])) for old, name in same.items())
    told = [sentences(kept["saved"], saved, counterparts(kept["saved"], saved)), OTHER_DRAW * redrawn]
    before = {
        dtype: {part: _renamed(each, same) for part, each in parts.items()} for dtype, parts in kept["found"].items()
    }
    now = _computed(measurement, model)
    agreement = _agreement(before, now, kept["noise"], same.values(), measurement)
    moved = {each.part for each in agreement.differences if each.dtype == EXACT and each.share > each.bound}
    if moved and moved <= {OF_INPUT, OF_PARAMETERS}:
        right = whose_is_right(
            copy.deepcopy(model), _input(measurement), case.entry.stops(case.hparams), before[EXACT], now[EXACT]
        )
        agreement = replace(agreement, right=right)
    code = imported_code(Path.cwd())
    return replace(agreement, weights=[*filter(None, told)], same_code=bool(code) and code == kept["code"])


def _built(measurement: CaseMeasurement, more: int = 0) -> nn.Module:
    """The case's module, from its seed or from another one."""
    torch.manual_seed(measurement.settings.seed + more)
    return measurement.case.build()


def _renamed(part: Tensors, same: Mapping[str, str]) -> Tensors:
    """A part of the baseline by the names of now; without what is gone."""
    return {same.get(name, name): each for name, each in part.items() if name in same or not name}


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
        found: dict[str, Tensors] = {"output": {"": forward(train=False)}}
    y = forward(train=True)
    found["output in training"] = {"": y}
    buffers = {name: tensor.double() for name, tensor in model.named_buffers() if tensor.is_floating_point()}
    if buffers:
        found[OF_BUFFERS] = buffers
    if y.requires_grad:
        weights = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED)).to(y.device)
        trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        gradients = torch.autograd.grad((y.double() * weights).sum(), [leaf, *trained.values()], materialize_grads=True)
        found[OF_INPUT] = {"": gradients[0]}
        if trained:
            found[OF_PARAMETERS] = dict(zip(trained, (each.double() for each in gradients[1:]), strict=True))
    return {part: {name: each.detach().clone() for name, each in tensors.items()} for part, tensors in found.items()}


def _moved(now: Tensors, before: Tensors) -> float:
    """The relative error over the names that both have, or 1 beside zeros."""
    names = now.keys() & before.keys()
    ours, theirs = (
        torch.cat([side[name].double().cpu().flatten() for name in sorted(names)]) for side in (now, before)
    )
    return relative_error(ours, theirs) if theirs.any() else float(ours.any())


def _finite(part: Tensors) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in part.values())


def _agreement(
    before: Mapping[str, Parts],
    now: Mapping[str, Parts],
    noise: Mapping[str, Mapping[str, float]],
    shared: Collection[str],
    measurement: CaseMeasurement,
) -> Agreement:
    """Agreement of present and earlier outputs, part by part, in each dtype that both sides ran in.

    Both have the names of now; those of `shared` weights were there before.
    """
    found = Agreement([], [], [])
    own = measurement.case.autocast_dtype or measurement.case.parameter_dtype
    for dtype in (each for each in before if each in now):
        for part, then in before[dtype].items():
            value, bound = now[dtype].get(part, {}), ROUNDING[torch.float64 if dtype == EXACT else own]
            differ = (value.keys() & shared) ^ then.keys() if "" not in then else then.keys() - value.keys()
            if not _finite(then):
                (found.repaired if value and _finite(value) else found.infinite).append(part)
            elif differ:
                found.notes.append(
                    f"other {part}: {listed(sorted(differ), MOST_NAMES)}" if any(differ) else f"no {part}"
                )
            elif any(value[name].shape != each.shape for name, each in then.items()):
                found.broken.append(f"the {part} has the shape {[*value[''].shape]}; before, {[*then[''].shape]}")
            elif not _finite(value):
                found.broken.append(f"the {part} holds NaN or infinity in {dtype}")
            elif then:
                bound = max(bound, OWN_ERROR * _moved(then, before.get(EXACT, before[dtype])[part]))
                found.differences.append(Difference(part, dtype, _moved(value, then), bound, noise[dtype][part]))
    case = measurement.case.dtype
    then_dtype, now_dtype = (str(each[case]["output"][""].dtype).removeprefix("torch.") for each in (before, now))
    if then_dtype != now_dtype:
        found.notes.append(f"an output in {now_dtype}, not in {then_dtype}")
    for each in (found.broken, found.notes, found.repaired, found.infinite):
        each[:] = dict.fromkeys(each)
    return found
