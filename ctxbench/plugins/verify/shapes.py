"""Checks of the constructor and of the output: shape, dtype, device, input sizes."""

import inspect

import torch

from ctxbench.meta.influence import forward
from ctxbench.model.dtype_names import dtypes, name_of
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, failed, is_refusal, listed, not_applicable, passed

# Odd, wide, tall, square, one row; each with at least 64 positions.
SIZES = ((9, 13), (13, 9), (8, 8), (1, 65), (65, 1))


def constructs(subject: Subject) -> CheckResult:
    """`cls(channels)` works: every hyper-parameter has a name and a default."""
    extra = _hyperparameters(subject)
    bare = [p.name for p in extra if p.default is p.empty and p.name not in subject.hparams]
    if bare:
        return failed(
            f"the constructor needs more than channels: {listed(bare)}",
            f"give a default, such as `{bare[0]}: int = 8`, or a value with --set {bare[0]}=8",
        )
    try:
        subject.build()
    except Exception as error:  # whatever a module raises is a result
        if not extra:
            raise
        names = listed([p.name for p in extra])
        return failed(describe_failure(error).message, f"fix it, or give a hyper-parameter with --set: {names}")
    chosen = ", ".join(f"{name}={value!r}" for name, value in subject.hparams.items())
    call = f"{subject.cls.__name__}({', '.join(filter(None, [str(subject.channels), chosen]))})"
    starred = [p.name for p in _parameters(subject) if p not in extra]
    return passed(f"{call}; what goes through {listed(starred)} cannot be set" if starred else call)


def typed(subject: Subject) -> CheckResult:
    """Each hyper-parameter has a type, against which `--set` and suites are checked."""
    extra = _hyperparameters(subject)
    if not extra:
        return not_applicable("no hyper-parameters")
    untyped = [p for p in extra if p.annotation is p.empty]
    if untyped:
        name, default = untyped[0].name, untyped[0].default
        unknown = default in (None, inspect.Parameter.empty)
        kind = "int | None" if unknown else type(default).__name__
        return failed(
            f"no type for {listed([p.name for p in untyped])}",
            f"write `{name}: {kind} = {None if unknown else default!r}`, so that a wrong --set {name}=... is caught",
        )
    return passed(", ".join(p.name for p in extra))


def _parameters(subject: Subject) -> list[inspect.Parameter]:
    return list(inspect.signature(subject.cls).parameters.values())[1:]


def _hyperparameters(subject: Subject) -> list[inspect.Parameter]:
    """Hyper-parameters that have a name."""
    return [p for p in _parameters(subject) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def shape(subject: Subject) -> CheckResult:
    """[B, C, H, W] becomes [B, C', H, W] of the same dtype, finite."""
    x = subject.image(dtype=torch.float32)
    module = subject.build().eval()
    try:
        y = forward(module, x)
    except ValueError as error:
        if not is_refusal(error):
            raise
        tokens = "the module seems to take tokens [B, N, C]: wrap it in one that maps [B, C, H, W] to the same"
        size = "check with a size that the module accepts: --size HEIGHT WIDTH"
        return failed(f"refused {_size(subject.size)}: {error}", tokens if "unpack" in str(error) else size)
    return _wrong_output(subject, x, y) or passed(f"{list(x.shape)} to {list(y.shape)}, {name_of(y.dtype)} kept")


def device(subject: Subject) -> CheckResult:
    """The output is on the input's device; checked on torch's meta device, which every machine has."""
    with torch.device("meta"):
        module = subject.build().eval()
    x = torch.empty(2, subject.channels, *subject.size, device="meta")
    try:
        y = module(x)
    except NotImplementedError as error:
        return not_applicable(f"cannot be checked without data: {_first_line(error)}")
    except RuntimeError as error:
        if "device" not in str(error):
            return not_applicable(f"cannot be checked without data: {_first_line(error)}")
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
    """Odd, wide, tall, square and one-row inputs."""
    return _at_sizes(subject, SIZES, "take the size from x.shape: height first, then width")


def one_position(subject: Subject) -> CheckResult:
    """A 1x1 input, as in a network with a small input image."""
    return _at_sizes(
        subject, ((1, 1),), "with one position there is nothing to mix, but the module should still return an output"
    )


def _at_sizes(subject: Subject, wanted: tuple[tuple[int, int], ...], hint: str) -> CheckResult:
    module = subject.build().eval()
    refused: dict[str, str] = {}
    taken = []
    for size in wanted:
        x = subject.image(size, dtype=torch.float32)
        try:
            y = forward(module, x)
        except Exception as error:  # whatever the module raises is what the check reports
            if not is_refusal(error):
                return failed(f"{_size(size)}: {describe_failure(error).message}", hint)
            refused[_size(size)] = str(error)
            continue
        if wrong := _wrong_output(subject, x, y):
            return failed(f"{_size(size)}: {wrong.fact}", wrong.hint)
        taken.append(_size(size))
    if refused:
        size_text, reason = next(iter(refused.items()))
        also = f"; it accepts {listed(taken)}" if taken else ""
        return not_applicable(f"the module itself refuses {size_text}: {reason}{also}")
    return passed(f"{', '.join(taken)}: size kept, finite")


def _wrong_output(subject: Subject, x: torch.Tensor, y: object) -> CheckResult | None:
    if not isinstance(y, torch.Tensor):
        return failed(f"forward returns {type(y).__name__}", "return one tensor [B, C', H, W]")
    batch, channels, height, width = x.shape
    out_channels = subject.entry.closed_form("out_channels", (batch, channels, height, width), subject.hparams)
    if y.shape != (batch, out_channels, height, width):
        declared = (
            "" if out_channels == channels else f" and out_channels is declared as {subject.entry.out_channels!r}"
        )
        hint = "a context module keeps B, H and W"
        if y.dim() == 4 and y.shape[1] != out_channels:
            hint = 'declare the output width: @register(..., out_channels="2*C")'
        elif list(y.shape[2:]) == [width, height]:
            hint = "height and width are swapped: the last view should be x.shape, which is [B, C, H, W]"
        return failed(f"{list(x.shape)} gives {list(y.shape)}{declared}", hint)
    if y.dtype != x.dtype:
        return failed(dtypes(x, y), "convert the output back: y.to(x.dtype)")
    if not torch.isfinite(y).all():
        return failed(
            "the output holds NaN or infinity",
            "look for a division by zero, a logarithm of zero, a maximum over nothing",
        )
    return None


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]
