"""The contract as an assertion, for tests in your own repository."""

from typing import TYPE_CHECKING, Any

from ctxbench.plugins.verify.contract import CHANNELS, OTHER_SIZES, SIZE, CheckResult

if TYPE_CHECKING:
    from torch import nn


def assert_context_module(
    cls: "type[nn.Module]", channels: int = CHANNELS, size: tuple[int, int] | None = None, **hparams: Any
) -> list[CheckResult]:
    """Assert that a class meets the contract of context modules, built as `cls(channels, **hparams)`.

    Its usual input has height and width `size`, by default 11 and 9, or others if it refuses that.

    The checks run in this process, in one thread and without a limit, so none is left undecided, and a module that
    hangs makes the test hang. The checks that only inform (torch.compile, torch.export, position mixing, types of
    hyper-parameters) never fail the test. Returns all results. Raises AssertionError with a line for each broken check,
    and UsageError for a hyper-parameter that the class does not have.
    """
    from ctxbench import registry
    from ctxbench.plugins.verify.checks import run_checks
    from ctxbench.plugins.verify.subject import Subject
    from ctxbench.registry.maker import maker_of_class

    entry = registry.of_class(cls)
    make = maker_of_class(cls, maps=False)
    made, others = entry.check_hparams(hparams, channels), () if size else OTHER_SIZES
    results = list(run_checks(Subject(entry, make, channels, made, size or SIZE, others)))
    broken = [f"{r.name}: {r.fact}\n    hint: {r.hint}" for r in results if r.broken]
    if broken:
        raise AssertionError("\n".join([f"{cls.__name__} does not meet the contract", *broken]))
    return results
