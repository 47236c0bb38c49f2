"""`ctxbench.profile`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctxbench import registry
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES, Mode
from ctxbench.model.conditions import CONDITIONS, parse_shape
from ctxbench.plugins.predict.sheet import sheet

if TYPE_CHECKING:
    from torch import nn

    from ctxbench.api import Module
    from ctxbench.plugins.profile.profile import Profile


def profile(
    module: "Module | nn.Module",
    shape: Sequence[int] | str,
    *,
    mode: str | None = None,
    dtype: str = "float32",
    target: str | None = None,
    hparams: Mapping[str, Any] | None = None,
) -> "Profile":
    """Take a module's passes on an input [B, C, H, W] apart, by line, submodule and operator; in this process.

    `module` is a name, a class or a module; it is measured on its own device, or with `target` (such as `a100-40gb`)
    predicted for that one. `mode` is `infer` or `train`, by default both. A name or a class is built with `hparams`,
    in `dtype`, which is also that of the input. Raises UsageError for a wrong argument.
    """
    from ctxbench.plugins.profile.child import profile_module

    if not isinstance(module, str | type) and not callable(getattr(module, "named_modules", None)):
        raise UsageError(f"module is {module!r}; profile takes a module, a class or a name such as 'sa'")
    if mode not in (None, *MODES):
        raise unknown("mode", str(mode), MODES)
    size = parse_shape(shape)
    CONDITIONS["dtype"].checked(dtype)
    if isinstance(module, str | type):
        entry = registry.get(module if isinstance(module, str) else registry.reference_of(module))
        module = entry.build(size[1], entry.check_hparams(hparams or {}))
    asked: Sequence[Mode] = MODES if mode is None else (mode,)
    return profile_module(module, size, asked, dtype, sheet(target) if target else None)
