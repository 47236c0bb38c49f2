"""`ctxbench.verify`."""

from collections.abc import Mapping
from typing import Any

from ctxbench.engine.client import ForkServer
from ctxbench.plugins.verify.contract import CHANNELS, SIZE, CheckResult
from ctxbench.plugins.verify.lines import summary
from ctxbench.plugins.verify.verify import verify as check_contract
from ctxbench.table.result import Result
from ctxbench.table.table import Origin, plain_table


def verify(
    module: str,
    *,
    channels: int = CHANNELS,
    size: tuple[int, int] = SIZE,
    hparams: Mapping[str, Any] | None = None,
    timeout_s: float = 60.0,
) -> Result[list[CheckResult]]:
    """Check that a module (a key, `path.py:Class` or `package.module:Class`) meets the contract of context modules.

    It is made for so many `channels`, and its usual input has height and width `size`. A check that takes more than
    `timeout_s` seconds of processor time is not decided. UsageError if there is nothing to check.
    """
    with ForkServer(static=False) as server:
        results = check_contract(module, server, channels=channels, size=size, hparams=hparams, timeout_s=timeout_s)
    rows = [[each.name, each.outcome, "yes" if each.required else "no", each.fact, each.hint] for each in results]
    words: dict[str, Origin] = {"fact": "text", "hint": "text"}
    headings: dict[str, Origin] = {"check": "label", "outcome": "label", "required": "label", **words}
    return Result(results, (plain_table(headings, rows), summary(module, results).plain))
