"""The contract: every module of the registry meets it, and each broken rule is reported with the measured fact."""

import builtins
import random
import time
from collections.abc import Sequence
from typing import Any

import broken_modules as broken
import pytest
import torch
from field_cases import FEW
from torch import Tensor, nn
from torch.nn import functional

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.devices import Unsupported
from ctxbench.executions import execution
from ctxbench.plugin import plugins
from ctxbench.plugins.verify import contract
from ctxbench.plugins.verify.advice import NETWORK
from ctxbench.plugins.verify.checks import CHECKS, COMPILERS, Check, run_checks
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject, difference
from ctxbench.plugins.verify.testing import assert_context_module

CORE = [check for check in CHECKS if check not in COMPILERS]


def subject_of(cls: type[nn.Module], channels: int = 8, **hparams: Any) -> Subject:
    return Subject(registry.of_class(cls), cls, channels, hparams, (11, 9))


def check(name: str, cls: type[nn.Module], channels: int = 8, **hparams: Any) -> CheckResult:
    """The result of one check."""
    (found,) = run_checks(subject_of(cls, channels, **hparams), [c for c in CHECKS if c.name == name])
    return found


def checked(
    key: str, channels: int, names: Sequence[str], hparams: Any = None, size: tuple[int, int] = contract.SIZE
) -> list[CheckResult]:
    """The results of these checks of a module of the registry, in the order of all checks."""
    entry = registry.get(key)
    subject = Subject(entry, entry.load(), channels, hparams or {}, size)
    return list(run_checks(subject, [c for c in CHECKS if c.name in names]))


@pytest.mark.slow
@pytest.mark.parametrize("key", registry.names())
def test_every_module_of_the_registry_meets_the_contract(key: str) -> None:
    entry = registry.get(key)
    # The closed forms are those of `test_macs.py`.
    checks = [check for check in CORE if check.name != "closed forms"]
    results = list(run_checks(Subject(entry, entry.load(), 32, FEW.get(key, {}), contract.SIZE), checks))
    assert [result for result in results if result.outcome == "failed"] == []
    assert [result.name for result in results] == [c.name for c in checks]
    passed = {result.name for result in results if result.outcome == "passed"}
    assert {"reach", "position mixing", "gradients", "batch items"} <= passed


@pytest.mark.slow
def test_the_good_module_passes_everything() -> None:
    results = assert_context_module(broken.Base, channels=8)
    assert {result.name: result.outcome for result in results if result.outcome != "passed"} == {
        "typed hyper-parameters": "not applicable",
        "closed forms": "not applicable",
        **({"ONNX": "not applicable"} if "runtimes" not in plugins() or execution("onnxruntime").lacking() else {}),
    }
    one_graph = next(result for result in results if result.name == "torch.compile")
    assert "aot_eager" in one_graph.fact
    assert not one_graph.required


def test_a_fixed_dtype_is_one_failure() -> None:
    core = [each for each in CORE if each.name != "closed forms"]
    failed = [result for result in run_checks(subject_of(broken.Float32Only), core) if result.outcome == "failed"]
    assert [result.name for result in failed] == ["other dtypes"]


def test_a_module_of_tokens_is_told_to_be_wrapped() -> None:
    hint = check("shape and dtype", broken.Tokens).hint
    assert hint.startswith("it does not take a map alone: `ctxbench new --around ")
    assert ":Tokens` prints a module to put around it" in hint


def test_a_package_may_replace_what_no_pass_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "save", lambda *arguments: None)
    found = check("replaces nothing", broken.Base)
    assert (found.outcome, found.fact) == ("passed", "no function of Python, time or torch is replaced")


def test_any_number_of_output_channels_will_do_where_none_is_declared_and_the_row_has_it() -> None:
    found = check("shape and dtype", broken.Doubles)
    assert (found.outcome, found.mark) == ("passed", "gives 16 channels")
    assert check("shape and dtype", broken.Base).mark == ""


def test_a_constructor_may_accept_any_argument() -> None:
    found = check("constructs", broken.Starred)
    assert (found.outcome, found.fact) == ("passed", "Starred(8)")


@pytest.mark.parametrize(
    ("name", "cls", "fact"),
    [
        ("constructs", broken.Needs, "needs more than channels: width"),
        ("typed hyper-parameters", broken.Untyped, "no type for reduction"),
        ("shape and dtype", broken.Pair, "forward returns tuple"),
        ("shape and dtype", broken.SaysKept, "[2, 8, 11, 9] gives [2, 16, 11, 9]"),
        ("shape and dtype", broken.Swapped, "[2, 8, 11, 9] gives [2, 8, 9, 11]"),
        ("shape and dtype", broken.Widened, "float32 in, float64 out"),
        ("shape and dtype", broken.Divides, "NaN or infinity"),
        ("device", broken.OnTheCpu, "device"),
        ("odd and non-square", broken.SquareOnly, "1x65: [2, 8, 1, 65] gives [2, 520, 1, 1]"),
        ("1x1", broken.NoSinglePosition, "1x1: the output holds NaN or infinity"),
        ("batch items", broken.MixesTheBatch, "item 0 of the batch changes by"),
        ("gradients", broken.Unused, "no gradient reaches spare.weight, spare.bias"),
        ("gradients", broken.Detached, "no gradient reaches the input"),
        ("gradients", broken.RootOfZero, "the gradient of the input, weight.weight, weight.bias and 2 more holds NaN"),
        ("repeatable", broken.Random, "two eval forward passes with the same seed differ by"),
        ("keeps its state", broken.Counts, "an eval forward pass changes seen"),
        ("keeps its state", broken.Overwrites, "forward changes its input in place"),
        ("keeps its state", broken.Lazy, "an eval forward pass adds bases"),
        ("state_dict", broken.Lazy, "Unexpected key(s) in state_dict"),
        ("state_dict", broken.Hidden, "after the state dict is saved and loaded, the output differs by"),
        ("train and eval", broken.StaysInTrain, "eval() does not reach weight, value"),
        ("other dtypes", broken.NoHalf, "bfloat16 in, float32 out"),
        ("other dtypes", broken.Overflows, "float16 holds NaN or infinity"),
        ("channels_last", broken.ReadsMemoryOrder, "the output differs by"),
        ("reach", broken.SaysLocal, "a change at the centre reaches 1023 of 1023 positions (100%)"),
        ("position mixing", broken.Squeeze, "global, but without position mixing"),
        ("position mixing", broken.SaysUnmixed, "far positions has different effects"),
        ("closed forms", broken.WrongParams, "params at [2, 8, 11, 9]: counted 144, the closed form gives 136"),
        ("prints nothing", broken.Prints, "it prints 'forward called'"),
        ("prints nothing", broken.PrintsPastPython, "it prints 'from a library'"),
        ("global state", broken.Reseeds, "torch's generator is reseeded"),
        ("global state", broken.ReseedsPython, "Python's random is reseeded"),
        ("global state", broken.Threads, "torch.get_num_threads changes from"),
        ("global state", broken.OneThread, "torch.get_num_threads changes from 2 to 1"),
        ("reads its input", broken.Remembers, "it gives the output of the input before"),
        ("reads its input", broken.RemembersTheLast, "it gives the output of the input before"),
        ("replaces nothing", broken.StopsTheClock, "it replaces time.perf_counter_ns"),
        ("replaces nothing", broken.ReplacesAMethod, "it replaces builtins.sum, torch.Tensor.softmax"),
        pytest.param("torch.compile", broken.Branches, "cannot be captured as one graph", marks=pytest.mark.slow),
        pytest.param("torch.export", broken.Branches, "torch.export: ", marks=pytest.mark.slow),
    ],
)
def test_each_broken_rule_is_told(name: str, cls: type[nn.Module], fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, attribute in ((time, "perf_counter_ns"), (torch.Tensor, "softmax"), (builtins, "sum")):
        monkeypatch.setattr(place, attribute, getattr(place, attribute))  # what a module replaces is put back
    found = check(name, cls)
    assert found.outcome == "failed"
    assert fact in found.fact
    assert found.hint


@pytest.mark.parametrize(
    ("name", "cls", "hint"),
    [
        ("constructs", broken.NoSuper, "call super().__init__() first in the constructor"),
        ("constructs", broken.NoChannels, "give the constructor an argument `channels`, before all others"),
        (
            "shape and dtype",
            broken.Of24Channels,
            "it is made for 24 channels: verify --channels 24 (Python: channels=24), compare --shape 1,24,64,64",
        ),
        (
            "shape and dtype",
            broken.OnCuda,
            "do not call .cuda(): make tensors with device=x.device, or register them as buffers",
        ),
        ("shape and dtype", broken.Guided, "it does not take a map alone: `ctxbench new --around "),
        ("shape and dtype", broken.Halves, "return B, H and W as they came: resize the output at the end of forward"),
        ("shape and dtype", broken.Overwrites, "write x = x + 1 instead of x += 1, or begin with x = x.clone()"),
        (
            "shape and dtype",
            broken.Several,
            f"return one tensor [B, C', H, W]; {NETWORK}. The later checks did not run.",
        ),
        ("shape and dtype", broken.Scores, f"return [B, C', H, W]; {NETWORK}"),
        ("shape and dtype", broken.Nothing, "return one tensor [B, C', H, W]. The later checks did not run."),
        ("shape and dtype", broken.Net, f"it takes no number of channels; {NETWORK}"),
    ],
)
def test_a_hint_says_what_to_type(name: str, cls: type[nn.Module], hint: str) -> None:
    found = check(name, cls)
    assert found.misleads
    assert found.hint.startswith(hint)


def test_random_numbers_in_eval_are_told() -> None:
    class Drops(broken.Base):
        def forward(self, x: Tensor) -> Tensor:
            return functional.dropout(super().forward(x), 0.5)

    found = check("repeatable", Drops)
    assert (found.outcome, found.mark) == ("passed", "random")
    assert "dropout needs self.training" in found.fact
    assert check("channels_last", Drops).outcome in ("passed", "not applicable")
    assert check("repeatable", broken.Base).mark == ""


def test_the_hint_names_the_closed_form_that_is_wrong() -> None:
    hint = "params='2*C**2 + C' in @register is wrong; `ctxbench show` prints both"
    assert check("closed forms", broken.WrongParams).hint == hint


@pytest.mark.parametrize(
    "name",
    [
        *("gradients", "prints nothing", "global state", "replaces nothing"),
        pytest.param("torch.compile", marks=pytest.mark.slow),
    ],
)
def test_a_module_without_weights_meets_the_contract(name: str) -> None:
    assert check(name, broken.Spectrum).outcome == "passed"


class NeedsOneOfTwo(broken.Base):
    def __init__(self, channels: int, window: int | None = None) -> None:
        super().__init__(channels)
        assert window, "give a window"


def test_a_constructor_that_asks_for_a_hyper_parameter_is_told_how_to_give_it() -> None:
    found = check("constructs", NeedsOneOfTwo)
    assert found.fact.startswith("AssertionError: give a window (test_contract.py, line ")
    assert found.hint.startswith("fix it, or give window another value: --set window=VALUE (Python: ")


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("channels_last", broken.Volume),
        ("reads its input", broken.Constant),
        ("replaces nothing", broken.Base),
        ("reach", broken.Squeeze),
        ("reach", broken.Base),
        ("position mixing", broken.Base),
        ("closed forms", broken.RightForms),
    ],
)
def test_what_holds_passes(name: str, cls: type[nn.Module]) -> None:
    assert check(name, cls).outcome == "passed"


def test_zero_gradients_behind_a_closed_gate_are_named_and_pass() -> None:
    linear = registry.get("linear").load()
    assert isinstance(linear, type)
    found = check("gradients", linear)
    assert found.outcome == "passed"
    assert "exactly zero at initialisation: query.weight" in found.fact


def test_the_checks_after_a_vital_failure_do_not_run() -> None:
    results = list(run_checks(subject_of(broken.Pair), CORE))
    assert [result.name for result in results] == ["constructs", "typed hyper-parameters", "shape and dtype"]
    assert results[-1].hint.endswith(". The later checks did not run.")


def test_the_generators_and_settings_are_left_as_they_were() -> None:
    torch.manual_seed(3)
    random.seed(3)
    states = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    list(run_checks(subject_of(broken.Threads), CORE))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), torch.get_num_threads()) == states[1:]


def test_every_check_runs_in_one_thread_but_the_one_that_sees_their_number_change() -> None:
    seen: dict[str, set[int]] = {}
    running = ""

    class Watched(broken.Base):
        def forward(self, x: Tensor) -> Tensor:
            seen.setdefault(running, set()).add(torch.get_num_threads())
            return super().forward(x)

    def start(check: Check) -> None:
        nonlocal running
        running = check.name

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        list(run_checks(subject_of(Watched), CORE, start))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert seen.pop("global state") == {1, 2}
    assert set(map(tuple, seen.values())) == {(1,)}
    assert len(seen) >= 15


def test_difference_is_relative_and_infinite_for_nan() -> None:
    assert difference(torch.tensor([2.0, 4.0]), torch.tensor([2.0, 3.0])) == 0.25
    assert difference(torch.zeros(2), torch.zeros(2)) == 0.0
    assert difference(torch.tensor([float("nan")]), torch.tensor([1.0])) == float("inf")


@pytest.mark.slow
def test_the_pytest_helper_names_what_is_broken() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_context_module(broken.Random, channels=8)
    assert str(caught.value).startswith("Random does not meet the contract\nbatch items: item 0 of the batch changes")
    assert "\n    hint: use only torch's default random generator" in str(caught.value)
    with pytest.raises(UsageError, match="unknown hyper-parameter of 'Base' 'rank'"):
        assert_context_module(broken.Base, channels=8, rank=3)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (
            "cannot be exported to ONNX: AssertionError: only 4D query, key, and value are supported",
            "torch.onnx.export(module.eval(), (x,), dynamo=True) prints all that the exporter says",
        ),
        ("onnxruntime does not take the exported file: no such operator", ""),
    ],
)
def test_the_hint_on_onnx_is_about_the_error(message: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def check(self, device: str, dtype: str, memory_format: str) -> None:
            pass

        def build(self, model: nn.Module, x: Tensor) -> None:
            raise Unsupported(message)

    monkeypatch.setattr("ctxbench.plugins.verify.precision.execution", lambda name: Refuses())
    entry = registry.get("se")
    (found,) = run_checks(Subject(entry, entry.load(), 16, {}, (11, 9)), [c for c in CHECKS if c.name == "ONNX"])
    assert (found.outcome, found.hint) == ("failed", hint)
    assert found.fact.startswith(message)
