"""`ctxbench.show`."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from ctxbench import api, registry
from ctxbench.base.errors import UsageError
from ctxbench.cli import describe
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.conditions import CONDITIONS, Names, Shapes
from ctxbench.plugins.macs.tools import full_names, not_run
from ctxbench.registry.entry import Entry
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


def show(
    module: "Module",
    shape: Shapes | None = None,
    *,
    dtype: Names | None = None,
    memory_format: Names | None = None,
    hparams: Mapping[str, Any] | None = None,
    by_operator: bool = False,
    counted_as: str | Sequence[str] | None = None,
) -> Result[Entry]:
    """Describe a module, and count its params and MACs at each input. Nothing is measured.

    Args:
        module: A name (a key, `path.py:Class`, `package.module:Class`), a class, a function of the number of channels,
            or an instance.
        shape: Input shape (B, C, H, W), or several; default: nothing is counted.
        dtype, memory_format: One value of each condition, or several, for the counts.
        hparams: Hyper-parameters by name, such as `{"steps": 3}`, for the counts.
        by_operator: Also the MACs of each operator.
        counted_as: Also what other counters print: `NAME`, `NAME@VERSION` or `NAME@VERSION+STATE`, such as
            `["thop", "fvcore@0.1.5+no-grad"]`; `all`: each that is known.

    Returns:
        What the registry knows of the module; the facts and counts are in `tables`.

    Raises:
        UsageError: For a wrong argument, and for a module that cannot be counted without data.

    Example:
        >>> ctxbench.show("se", (1, 16, 4, 4)).tables[-1].data["counted"].tolist()[:2]
        ['49', '304']
    """
    given = {"dtype": dtype, "memory_format": memory_format}
    others = {CONDITIONS[name].option: value for name, value in given.items()}
    for option, value in {**others, "--set": hparams, "--by-operator": by_operator, "--as": counted_as}.items():
        if value and shape is None:
            raise UsageError(f"{option} goes with --shape: without an input shape, no cost is computed")
    asked = [counted_as] if isinstance(counted_as, str) else [*(counted_as or ())]
    tools = [*full_names(asked), *(not_run() if "all" in asked else ())]
    values = api.conditions_of({"shape": shape, **given})
    with IsolatedLoader() as loader:
        chosen = product(*values.values()) if values else []
        cases = [api.case_of(module, hparams, **dict(zip(values, each, strict=True))) for each in chosen]
        entry = registry.get((api.module_names(module) or [""])[0])
        counts = [
            part for case in cases for part in api.answer(loader, case, "costs", by_operator, tools, keep="always")[1]
        ]
    return Result(entry, (*describe.module(entry), *counts))
