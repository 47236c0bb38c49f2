"""`ctxbench.profile`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api, devices
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES, Mode
from ctxbench.engine.isolated import IsolatedLoader, KeptAnswers
from ctxbench.executions import execution as way_of
from ctxbench.model.conditions import CONDITIONS, OneShape, parse_shape
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.plugins.profile.profile import Profile
from ctxbench.plugins.profile.tables import parts
from ctxbench.plugins.profile.traces import check_traces
from ctxbench.table.terminal import as_text

if TYPE_CHECKING:
    from ctxbench.api import Module


class PrintedProfile(Profile):
    """A profile that prints as its command prints it."""

    def __repr__(self) -> str:
        return as_text(parts(self, "own"))


def profile(
    module: "Module",
    shape: OneShape | None = None,
    *,
    dtype: str | None = None,
    memory_format: str | None = None,
    network: str | None = None,
    execution: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    target: str | None = None,
    mode: str = "both",
    hparams: Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
) -> PrintedProfile:
    """Take a module's passes apart, by line, submodule and operator: measured, or predicted for a device.

    What is no instance is built and measured in a fresh process. An instance is measured in this one, on its device; of
    the arguments after `shape` it takes `dtype`, `target` and `mode`.

    Args:
        module: An instance, a class, a function of the number of channels, or a name (a key, `path.py:Class`,
            `package.module:Class`).
        shape: Input shape (B, C, H, W); default: 1, 512, 128, 128, or the network's own.
        dtype: Of weights and input, such as `bfloat16`, or `autocast-float16`; default: float32.
        memory_format: contiguous or channels_last; default: contiguous.
        network: A network, or `path.py:function`, into which the module is put; default: the module alone.
        execution: eager or compile; default: eager.
        device: cpu, cuda or cuda:1; default: a GPU if there is one.
        threads: Number of CPU threads; default: torch's choice.
        target: Predict for a device, such as a100-40gb or a TOML file, and measure nothing.
        mode: infer, train or both.
        hparams: Hyper-parameters by name, such as `{"steps": 3}`.
        trace: Write timelines for Perfetto and speedscope into a folder.

    Returns:
        The passes by mode; `frame("line")`, `frame("submodule")` and `frame("operator")` are their tables.

    Raises:
        UsageError: For a wrong argument, and for a pass that cannot be profiled.

    Example:
        >>> found = ctxbench.profile("se", (1, 16, 8, 8), mode="infer", target="a100-40gb")
        >>> int(found.frame("operator")["macs"].sum())
        1072
    """
    if mode not in (*MODES, "both"):
        raise unknown("mode", mode, (*MODES, "both"))
    modes: tuple[Mode, ...] = MODES if mode == "both" else (mode,)  # type: ignore[assignment]  # checked above
    conditions = {
        "dtype": dtype, "memory_format": memory_format, "network": network, "execution": execution, "device": device,
        "threads": threads,
    }  # fmt: skip
    torch = sys.modules.get("torch")  # whose import takes seconds, and which who has a module has imported
    if torch is None or not isinstance(module, torch.nn.Module):
        found = _of_case(module, hparams, {**conditions, "shape": shape}, target, modes, trace)
        return PrintedProfile(**vars(found))
    for name, value in {**conditions, "hparams": hparams, "trace": trace}.items():
        if value is not None and name != "dtype":
            raise UsageError(f"{name} goes with a class or a name; a module is profiled as it is")
    from ctxbench.plugins.profile.child import profile_module
    from ctxbench.registry.layout import of_map

    size = parse_shape(shape)
    dtype = CONDITIONS["dtype"].checked(dtype or CONDITIONS["dtype"].default)
    found = profile_module(of_map(module, size[1]), size, modes, dtype, sheet(target) if target else None)
    return PrintedProfile(**vars(found))


def _of_case(
    module: "Module",
    hparams: Mapping[str, Any] | None,
    conditions: Mapping[str, Any],
    target: str | None,
    modes: Sequence[Mode],
    trace: str | Path | None,
) -> Profile:
    """The profile of a module that a fresh process builds."""
    if trace is not None:
        check_traces(Path(trace))
    with IsolatedLoader() as loader:
        given = {name: value for name, value in conditions.items() if value is not None}
        case = api.case_of(module, hparams, **{"device": "auto", **given})
        for name in ("execution", "device"):
            if target is not None and name in given:
                raise UsageError(f"--{name} is for what is measured; with --for, eager passes are predicted")
        if "execution" in given and not (case.execution == "eager" or way_of(case.execution).compiles):
            raise UsageError(f"--execution {case.execution} goes by no operator; profile takes eager or compile")
        if not devices.has_clock(case.device) and case.device != "auto":
            raise UsageError(f"--device {case.device}: nothing can be measured there; --for predicts")
        folder = str(Path(trace).absolute()) if trace else None
        on = sheet(target) if target else None
        # what is measured is not kept, nor are kernels of another CPU than the one at hand
        keep: KeptAnswers = "no" if on is None or folder else "here" if on.backend == "cpu" else "always"
        found: Profile = loader.ask(case, "profile", Profile, modes, on, folder, keep=keep)
    return found
