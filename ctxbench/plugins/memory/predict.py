"""Peak memory predicted on the meta device: for any size, in milliseconds, without data and without a GPU."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction

from ctxbench.base.dtypes import IN_TF32
from ctxbench.base.errors import text_of
from ctxbench.base.garbage import collector_off
from ctxbench.base.mode import Mode
from ctxbench.base.reasons import said
from ctxbench.meta.as_written import unchecked_distributions
from ctxbench.meta.autocast import Autocast
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.outputs import tensors_of
from ctxbench.meta.refusal import lacks_kernel, reads_values, where
from ctxbench.meta.scan import on_meta_as_on_cpu
from ctxbench.meta.without_compiler import has_compiler, without_compiler
from ctxbench.plugin import loaded
from ctxbench.plugins.memory.checked import unchecked
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.era import in_2020
from ctxbench.plugins.memory.kernels import THEN, MemoryDevice, MemoryRules
from ctxbench.plugins.memory.one_pass import backward, check_mode, forward, prepared, weight_tensors
from ctxbench.plugins.memory.profile import MemoryProfile
from ctxbench.plugins.memory.tracker import Tracker
from ctxbench.plugins.memory.training import stepped
from ctxbench.plugins.memory.watch import CallWatch

# The class of what torch.compile returns for a module; its import takes longer than torch's.
COMPILED = "OptimizedModule"


@without_compiler()
def predict_peak(
    module: nn.Module,
    *inputs: Any,
    mode: Mode,
    device: MemoryDevice = "cuda",
    autocast: torch.dtype | None = None,
    optimizer: str = "",
) -> MemoryProfile:
    """Predict the peak of one pass of `module` on `inputs` under `CONVENTION`; neither is changed.

    With an `optimizer` of `step.py`, of the whole training step: its state is there from the start, and its own step
    follows the backward pass.

    Tensors may be on any device, meta included; only their shapes, strides and dtypes are read. `device` is what the
    prediction is for (`kernels.py`), `autocast` the dtype of a forward pass under `torch.autocast`. What the table does
    not know is in the profile's `marks`. The CPU is this machine's, with its threads and its cap on instruction sets
    (`ONEDNN_MAX_CPU_ISA`). Raises UnpredictableError, with the reason, where the peak cannot be known.
    """
    check_mode(mode)
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise UnpredictableError("autocast around a prediction is not in it; give its dtype as `autocast`")
    table = MemoryRules(device)
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule) or name == COMPILED:
        raise UnpredictableError(
            f"{name} is compiled, and the compiler decides what is allocated; predict the plain module"
        )
    had_compiler = has_compiler()
    twin = _copied(module)
    stand_ins = tuple(_stand_in(value) if isinstance(value, torch.Tensor) else value for value in inputs)
    tracker = Tracker(table, twin)
    for weight, tensor in weight_tensors(twin):
        tracker.add_weight(weight, tensor)
    weights = tracker.live_bytes
    moved = [each for each in twin.parameters() if each.requires_grad]
    made = stepped(moved, optimizer, device) if optimizer and moved else None
    for tensor in _state(made):
        tracker.add_state(tensor)
    for tensor in _tensors(stand_ins):
        tracker.ignore(tensor)
    on_meta_too = kernels_on_meta(table.device)
    with prepared(twin, mode), collector_off(), _explained(name), on_meta_too, unchecked_distributions():
        _run(tracker, twin, stand_ins, mode, autocast, made)
    if has_compiler() and not had_compiler:  # a checkpoint imports it, and the import keeps tensors of the pass
        options: Any = {"mode": mode, "device": device, "autocast": autocast, "optimizer": optimizer}
        return predict_peak(module, *inputs, **options)
    if any(type(each).__name__ == COMPILED for each in module.modules()):
        tracker.replaced = True
        tracker.marks["torch.compile"] = (
            "a compiled part is predicted as it is written; what it allocates is decided later"
        )
    if not tracker.timeline:
        raise UnpredictableError(f"{name} calls no PyTorch operator, so there is nothing to predict")
    if any(_is_channels_last(tensor) for tensor in _tensors(inputs)):
        tracker.marks["channels_last"] = "kernels for this memory format copy and allocate differently"
    found = MemoryProfile(
        module=name,
        mode=mode,
        device=device,
        weights_bytes=weights,
        timeline=tracker.timeline,
        allocations=tracker.allocations,
        marks=tracker.marks,
        workspaces=table.workspaces({step.op.split(".")[1] for step in tracker.timeline}),
        unfused=tracker.unfused,
        scans=tracker.scans,
        unchecked=unchecked(device),
        trained=len(moved) if mode == "train" else 0,
        replaced=tracker.replaced,
        calls=tracker.calls,
        given=tuple(each.untyped_storage().nbytes() for each in _tensors(stand_ins)),
        since_2020=tracker.since_2020,
    )
    return in_2020(found) if device == THEN.device else found


def on_card(profile: MemoryProfile, card: str, dtype: str = "float32") -> MemoryProfile:
    """The profile with what plugins know of the workspaces of a card, by the name of its data sheet; "" is none.

    `dtype` is the word for the case's, which says whether convolutions are in TF32.
    """
    for told_by in loaded("workspaces") if card else ():
        profile = told_by(profile, card, dtype in IN_TF32)
    return profile


def _state(optimizer: torch.optim.Optimizer | None) -> Iterator[torch.Tensor]:
    for state in optimizer.state.values() if optimizer else ():
        yield from _tensors(tuple(state.values()))


def _run(
    tracker: Tracker,
    twin: nn.Module,
    inputs: tuple[Any, ...],
    mode: Mode,
    autocast: torch.dtype | None,
    optimizer: torch.optim.Optimizer | None,
) -> None:
    casting = Autocast(tracker.table.device, autocast)
    casting.on_kept = tracker.mark_kept
    on_cpu = on_meta_as_on_cpu(tracker.table.counts_host)
    with casting, CallWatch(tracker, mode, casting), tracker.forward(), on_cpu:
        output = forward(twin, inputs, mode)
    for tensor in tensors_of(output):
        tracker.mark_category(tensor, "output")
    if mode == "train":
        _mark_saved(tracker, output)
        with tracker.backward():
            backward(output)
        for parameter in twin.parameters():
            if parameter.grad is not None:
                tracker.mark_category(parameter.grad, "weight gradient")
        if optimizer is not None:
            tracker.in_optimizer = True
            with tracker:
                optimizer.step()
    tracker.finish()


@contextmanager
def kernels_on_meta(device: str) -> Iterator[None]:
    """Give meta the kernels that a device has for operators with parts, so that PyTorch does not run the parts.

    native_functions.yaml of PyTorch lists them: `CompositeImplicitAutograd` beside the device's own.
    """
    made: dict[str, Callable[..., Any]] = {"mish_backward": lambda grad, data: torch.empty_like(data)}
    if device != "cpu":
        made |= {"_fused_rms_norm": _rms_norm, "_fused_rms_norm_backward": _rms_norm_backward}
    library = torch.library.Library("aten", "IMPL", "Meta")
    # past `Library.impl`, which refuses a meta kernel for what has parts
    assert library.m is not None
    for name, kernel in made.items():
        library.m.impl(name, "Meta", kernel)
    try:
        yield
    finally:
        library._destroy()


def _rms_norm(data: torch.Tensor, sizes: Sequence[int], *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, contiguous, and 1 / rms of each row, of half types in float32 (layer_norm_kernel.cu)."""
    rows = [*data.shape[: data.dim() - len(sizes)], *[1] * len(sizes)]
    wide = torch.promote_types(data.dtype, torch.float32)
    return data.new_empty(data.shape), data.new_empty(rows, dtype=wide)


def _rms_norm_backward(
    grad: torch.Tensor, data: torch.Tensor, sizes: Any, rstd: Any, weight: torch.Tensor | None, mask: Sequence[bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients that are asked for, contiguous (layer_norm_kernel.cu)."""
    of_weight = torch.empty_like(weight) if weight is not None and mask[1] else None
    return data.new_empty(data.shape) if mask[0] else None, of_weight


def _mark_saved(tracker: Tracker, output: Any) -> None:
    """Walk the autograd graph: tell the tracker what each node saves, and mark the nodes that Python code defines."""
    pending, seen = [each.grad_fn for each in tensors_of(output)], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending.extend(following for following, _ in node.next_functions)
        if isinstance(node, BackwardCFunction):
            tracker.marks[node.name()] = "a custom autograd.Function: only the PyTorch operators it calls are counted"
        for attribute in dir(node):
            if attribute.startswith("_raw_saved"):
                saved = getattr(node, attribute)
                for one in saved if isinstance(saved, tuple | list) else (saved,):
                    if isinstance(one.data, torch.Tensor):  # a saved-tensor hook returns something else
                        tracker.mark_saved(one.data, node.name())


def _copied(module: nn.Module) -> nn.Module:
    """The module's copy on meta; UnpredictableError if there can be none."""
    for name, tensor in weight_tensors(module):
        if nn.parameter.is_lazy(tensor):
            raise UnpredictableError(f"{name} has no shape before the first forward pass; run the module once")
    try:
        return on_meta(module)
    except Exception as error:
        raise UnpredictableError(
            f"{type(module).__name__} cannot be copied to the meta device ({said(error)}); build it there "
            "with torch.device('meta'), with all its tensors in parameters or buffers"
        ) from error


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return empty.requires_grad_(tensor.requires_grad)


def _tensors(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    return (value for value in values if isinstance(value, torch.Tensor))


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn an error on meta into a sentence that names the line of the module's code."""
    try:
        yield
    except UnpredictableError:
        raise
    except Exception as error:
        told = f"{said(error)}{_hint(error)}"
        raise UnpredictableError(f"{name} fails on the meta device{where(error)}: {told}") from error


def _hint(error: Exception) -> str:
    message = text_of(error)
    if "device" in message and ("same" in message or "cpu" in message):
        return " (create new tensors on the input's device: device=x.device)"
    if lacks_kernel(error):
        return " (it has no kernel without data: ctxbench run --metrics memory measures it)"
    if reads_values(error):
        return " (what it does depends on the data, so only a measurement can tell)"
    return ""
