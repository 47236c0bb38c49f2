"""Checks of the constructor and of the output: shape, dtype, device, input sizes."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import torch

from ctxbench.base.reasons import reason
from ctxbench.meta.built import without_data
from ctxbench.meta.influence import forward
from ctxbench.meta.outputs import tensors_of
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.model.dtype_names import dtypes, name_of
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.verify.advice import NETWORK, OWN, advice
from ctxbench.plugins.verify.contract import OTHER_SIZES, CheckResult, option
from ctxbench.plugins.verify.subject import (
    OVERWRITES,
    Subject,
    failed,
    listed,
    not_applicable,
    output_size,
    passed,
    shown,
)
from ctxbench.registry import asking
from ctxbench.registry.layout import OfMap
from ctxbench.registry.maker import Maker

# Odd, wide, tall, square, one row; each with at least 64 positions.
SIZES = ((9, 13), (13, 9), (8, 8), (1, 65), (65, 1))


def constructs(subject: Subject) -> CheckResult:
    """`cls(channels)` works: every hyper-parameter has a name and a default."""
    known = subject.entry.hyperparameters
    if bare := asking.missing(known, subject.hparams):
        size = (subject.make.size if isinstance(subject.make, Maker) else None) or subject.size
        found = asking.working(subject.make, bare, subject.channels, subject.hparams, size)
        works = option(asking.options(found), f"hparams={found}") if found else ""
        return failed(
            f"the constructor needs more than channels: {listed(bare)}",
            f"give a default, or a value; this works: {works}" if works else "give each a default, or a value by --set",
        )
    try:
        if isinstance(make := subject.make, Maker):
            make.construct(subject.channels, subject.hparams)
        else:
            subject.build()
    except Exception as error:  # whatever a module raises is a result
        if not known:
            raise
        names, first = listed([each.name for each in known]), known[0].name
        value = option(f"--set {first}=VALUE", f"hparams={{'{first}': VALUE}}")
        return failed(describe_failure(error).message, f"fix it, or give {names} another value: {value}")
    chosen = ", ".join(f"{name}={value!r}" for name, value in subject.hparams.items())
    call = f"{subject.entry.key}({', '.join(filter(None, [str(subject.channels), chosen]))})"
    starred = _starred(subject.make)
    return passed(f"{call}; what goes through {listed(starred)} cannot be set" if starred else call)


def typed(subject: Subject) -> CheckResult:
    """Each hyper-parameter has a type, against which `--set` and suites are checked."""
    known = subject.entry.hyperparameters
    if not known:
        return not_applicable("no hyper-parameters")
    untyped = [each for each in known if each.annotation == "typing.Any"]
    if untyped:
        name, default = untyped[0].name, untyped[0].default
        kind = "int | None" if default is None else type(default).__name__
        written = f"{name}: int" if untyped[0].required else f"{name}: {kind} = {default!r}"
        return failed(
            f"no type for {listed([each.name for each in untyped])}",
            f"write `{written}`, so that a wrong value of {name} is refused",
        )
    return passed(", ".join(each.name for each in known))


def _starred(make: Callable[..., object]) -> list[str]:
    """The arguments of a constructor that have no name: `*args`."""
    function = make.function if isinstance(make, Maker) else make
    return [each.name for each in inspect.signature(function).parameters.values() if each.kind is each.VAR_POSITIONAL]


def shape(subject: Subject) -> CheckResult:
    """[B, C, H, W] becomes [B, C', H, W] of the same dtype, finite."""
    x = subject.image(dtype=torch.float32)
    module = subject.build().eval()
    if isinstance(module, OfMap):  # which copies other maps, so that a change in place would not be seen
        x = x.contiguous(memory_format=torch.channels_last)
    kept = x.clone()
    try:
        y = forward(module, x)
    except Exception as error:  # whatever the module raises is what the check reports
        hint = advice(error, subject)
        if hint == OWN:
            hint = _sizes_advice(subject) or hint
        return failed(f"{shown(subject.size)}: {describe_failure(error).message}", hint)
    refused = f"; {subject.refused}" if subject.refused else ""
    takes = f"; it takes {module.told}, of which ctxbench makes a map" if isinstance(module, OfMap) else ""
    if not torch.equal(x, kept):
        return failed(*OVERWRITES)
    sizes = f"{list(x.shape)} to {list(y.shape)}, {name_of(y.dtype)} kept" if isinstance(y, torch.Tensor) else ""
    if wrong := _wrong_output(subject, x, y):
        return wrong
    of_weights = bool(refused) and subject.size not in subject.other_sizes
    marks = [f"takes {shown(subject.size)}"] * of_weights
    marks += [f"gives {y.shape[1]} channels"] * (not subject.entry.declared and y.shape[1] != subject.channels)
    return replace(passed(f"{sizes}{takes}{refused}"), mark="; ".join(marks))


def _sizes_advice(subject: Subject) -> str:
    """Hint at a usual height and width that the module keeps, else at one that it changes; "" if it takes none."""
    made = {each: output_size(subject, each)[0] for each in OTHER_SIZES}
    if taken := next((each for each, size in made.items() if size == each), None):
        size = option(f"verify --size {taken[0]} {taken[1]}", f"size={taken}")
        return f"fix it, or check at a size that it takes: {size}"
    changed = ((each, size) for each, size in made.items() if len(size) == 2)
    return next(
        (f"it makes {shown(size)} of {shown(each)}, where a block keeps the size; {NETWORK}" for each, size in changed),
        "",
    )


@without_compiler()
def device(subject: Subject) -> CheckResult:
    """The output is on the input's device; checked on torch's meta device, which every machine has."""
    module = without_data(subject.build).eval()
    x = torch.empty(2, subject.channels, *subject.size, device="meta")
    try:
        y = module(x)
    except NotImplementedError as error:
        return not_applicable(f"cannot be checked without data: {reason(error)}")
    except RuntimeError as error:
        if "device" not in str(error):
            return not_applicable(f"cannot be checked without data: {reason(error)}")
        return failed(
            describe_failure(error).message,
            "a tensor is created on the CPU, not on the input's device: use device=x.device or register_buffer",
        )
    if y.device.type != "meta":
        return failed(
            f"an input on {x.device} gives an output on {y.device}", "create new tensors with device=x.device"
        )
    return passed("the output is on the input's device (checked on torch's meta device)")


def sizes(subject: Subject) -> CheckResult:
    """Odd, wide, tall, square and one-row inputs: which of them it takes."""
    return _at_sizes(subject, SIZES)


def one_position(subject: Subject) -> CheckResult:
    """A 1x1 input, as in a network with a small input image."""
    return _at_sizes(subject, ((1, 1),))


def _at_sizes(subject: Subject, wanted: tuple[tuple[int, int], ...]) -> CheckResult:
    module = subject.build().eval()
    refused: dict[str, str] = {}
    taken = []
    for size in wanted:
        x = subject.image(size, dtype=torch.float32)
        try:
            y = forward(module, x)
        except Exception as error:  # a block may refuse a size; which ones is a fact
            refused[shown(size)] = describe_failure(error).message
            continue
        if wrong := _wrong_output(subject, x, y):
            return failed(f"{shown(size)}: {wrong.fact}", wrong.hint)
        taken.append(shown(size))
    if refused:
        takes = dict.fromkeys([*taken, shown(subject.size)])
        return not_applicable(
            f"it refuses {', '.join(refused)}: {next(iter(refused.values()))}; it takes {', '.join(takes)}"
        )
    return passed(f"{', '.join(taken)}: size kept, finite")


def _wrong_output(subject: Subject, x: torch.Tensor, y: object) -> CheckResult | None:
    if not isinstance(y, torch.Tensor):
        network = f"; {NETWORK}" * bool(tensors_of(y))
        return failed(f"forward returns {type(y).__name__}", f"return one tensor [B, C', H, W]{network}")
    batch, channels, height, width = x.shape
    out_channels = subject.entry.output_width((batch, channels, height, width), subject.hparams)
    is_kept = y.dim() == 4 and (y.shape[0], *y.shape[2:]) == (batch, height, width)
    if not is_kept or out_channels not in (None, y.shape[1]):
        declared = (
            ""
            if out_channels in (None, channels)
            else f" and out_channels is declared as {subject.entry.out_channels!r}"
        )
        hint = "return B, H and W as they came: resize the output at the end of forward"
        if y.dim() != 4:
            hint = f"return [B, C', H, W]; {NETWORK}"
        elif is_kept:
            hint = 'declare the output width: @register(..., out_channels="2*C")'
        elif list(y.shape[2:]) == [width, height]:
            hint = "height and width are swapped: the last view should be x.shape, which is [B, C, H, W]"
        elif y.shape[1] != channels:
            hint = f"{hint}; {NETWORK}"
        return failed(f"{list(x.shape)} gives {list(y.shape)}{declared}", hint)
    if y.dtype != x.dtype:
        return failed(dtypes(x, y), "convert the output back: y.to(x.dtype)")
    if not torch.isfinite(y).all():
        return failed(
            "the output holds NaN or infinity",
            "look for a division by zero, a logarithm of zero, a maximum over nothing",
        )
    return None
