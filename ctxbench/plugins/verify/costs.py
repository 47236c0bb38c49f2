"""Check of the declared closed forms against the counters, at two shapes and with each hyper-parameter changed."""

import typing
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ctxbench.meta.built import without_data
from ctxbench.metrics.params import count_params
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.macs.watch import UncountableError
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, failed, is_refusal, not_applicable, passed
from ctxbench.registry.hyperparameter import Hyperparameter


def closed_forms(subject: Subject) -> CheckResult:
    """`params` and `macs`, as declared, equal what is counted on the meta device."""
    declared = [which for which in ("params", "macs") if getattr(subject.entry, which) is not None]
    if not declared:
        return not_applicable("no closed form is declared; @register takes params= and macs=")
    height, width = subject.size
    counted = 0
    settings: list[Mapping[str, Any]] = []
    for changed in _variations(subject):
        for shape in ((2, subject.channels, height, width), (1, subject.channels, width + 4, height + 2)):
            try:
                wrong = _disagreement(subject, declared, shape, changed)
            except UncountableError as error:
                return not_applicable(str(error))
            except ValueError as error:
                if not is_refusal(error):
                    raise
                continue  # the module rejects this setting
            if wrong:
                return wrong
            counted += 1
            settings.append(changed)
    if not counted:
        return not_applicable("the module refuses every shape that was tried")
    number = len({str(setting) for setting in settings})
    return passed(
        f"{' and '.join(declared)} equal the counted values ({number} hyper-parameter settings, {counted} counts)"
    )


def _disagreement(
    subject: Subject, declared: list[str], shape: tuple[int, int, int, int], changed: Mapping[str, Any]
) -> CheckResult | None:
    module = without_data(lambda: subject.build(**changed))
    counts = {"params": lambda: count_params(module), "macs": lambda: count_macs(module, torch.empty(shape)).macs}
    for which in declared:
        formula = subject.entry.closed_form(which, shape, {**subject.hparams, **changed})
        if formula != (count := counts[which]()):
            setting = "".join(f", {name}={value!r}" for name, value in changed.items())
            return failed(
                f"{which} at {list(shape)}{setting}: counted {count:,}, the closed form gives {formula:,}",
                f"{which}={getattr(subject.entry, which)!r} in @register is wrong; `ctxbench show` prints both",
            )
    return None


def _variations(subject: Subject) -> Iterator[dict[str, Any]]:
    """No change, then each hyper-parameter changed, one at a time."""
    yield {}
    for parameter in subject.entry.hyperparameters:
        value = subject.hparams.get(parameter.name, parameter.default)
        for other in _others(parameter, value, subject.channels):
            yield {parameter.name: other}


def _others(parameter: Hyperparameter, value: Any, channels: int) -> list[Any]:
    """Other values of a hyper-parameter that may change what the module costs."""
    if typing.get_origin(parameter.type) is typing.Literal:
        return [choice for choice in typing.get_args(parameter.type) if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, value + 1, max(value // 2, 1)]
    if value is None and "int" in parameter.annotation:
        return [channels // 2]
    return []
