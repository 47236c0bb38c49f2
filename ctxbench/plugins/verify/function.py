"""`ctxbench.verify`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ctxbench import api, registry
from ctxbench.base.errors import UsageError
from ctxbench.engine.client import ForkServer
from ctxbench.model.conditions import OneShape, parse_shape
from ctxbench.plugins.verify.contract import TIMEOUT_S, CheckResult
from ctxbench.plugins.verify.lines import summary
from ctxbench.plugins.verify.verify import verify as check_contract
from ctxbench.table.result import Result
from ctxbench.table.table import Origin, plain_table

if TYPE_CHECKING:
    from ctxbench.api import Module


def channels_and_size(
    shape: OneShape | None, channels: int | None, size: tuple[int, int] | None
) -> tuple[int | None, tuple[int, int] | None]:
    """The number of channels, and height and width, of a shape; those given where there is none."""
    if shape is None:
        return channels, size
    if channels or size:
        raise UsageError("a shape says the channels and the size: give it alone")
    _, channels, height, width = parse_shape(shape)
    return channels, (height, width)


def verify(
    module: "Module",
    *,
    hparams: Mapping[str, Any] | None = None,
    shape: OneShape | None = None,
    channels: int | None = None,
    size: tuple[int, int] | None = None,
    timeout_s: float = TIMEOUT_S,
    on_result: Callable[[CheckResult], None] = lambda result: None,
) -> Result[list[CheckResult]]:
    """Check that a module meets the contract of context modules. Its code is run, in fresh processes.

    Args:
        module: A name (a key, `path.py:Class`, `package.module:Class`), a class, a function of the number of channels,
            or an instance.
        hparams: Hyper-parameters by name, such as `{"steps": 3}`.
        shape: Input shape (B, C, H, W), in place of channels and size; the checks take one image and two.
        channels: Number of channels of the inputs; default: 64, or those of an instance.
        size: Height and width of the usual input; default: 11 9, or what it takes.
        timeout_s: Stop a check after so many seconds of processor time.
        on_result: Gets each result as soon as it is known.

    Returns:
        The result of each check: its name, outcome, fact and hint.

    Raises:
        UsageError: If there is nothing to check, such as a name that is unknown.

    Example:
        >>> found = ctxbench.verify("se", channels=16)
        >>> [each.name for each in found.value if each.outcome == "failed" and each.required]
        []
    """
    (name,) = api.module_names([module]) or [""]
    channels, size = channels_and_size(shape, channels, size)
    with ForkServer(static=False) as server:
        results = check_contract(
            name, server, channels=channels, size=size, hparams=hparams, timeout_s=timeout_s, on_result=on_result
        )
    rows = [[each.name, each.outcome, "yes" if each.required else "no", each.fact, each.hint] for each in results]
    words: dict[str, Origin] = {"fact": "text", "hint": "text"}
    headings: dict[str, Origin] = {"check": "label", "outcome": "label", "required": "label", **words}
    return Result(results, (plain_table(headings, rows), summary(registry.own_name(name), results).plain))
