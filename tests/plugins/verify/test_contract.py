"""The contract: every module of the registry meets it, and each broken rule is reported with the measured fact."""

import builtins
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import EngineClock
from field_cases import FEW
from torch import Tensor, nn
from torch.nn import functional

from ctxbench import register, registry
from ctxbench.base.errors import UsageError
from ctxbench.cli.commands import template
from ctxbench.devices import Unsupported
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.executions import execution
from ctxbench.plugin import plugins
from ctxbench.plugins.verify import contract, lines
from ctxbench.plugins.verify.advice import NETWORK
from ctxbench.plugins.verify.checks import CHECKS, COMPILERS, Check, run_checks
from ctxbench.plugins.verify.contract import CheckResult, judged
from ctxbench.plugins.verify.subject import Subject, difference
from ctxbench.plugins.verify.testing import assert_context_module
from ctxbench.plugins.verify.verify import verify
from ctxbench.plugins.verify.wire import CheckDone, CheckStarted
from ctxbench.worker.lines import plain
from ctxbench.worker.protocol import Payload, Reply, Task

CORE = [check for check in CHECKS if check not in COMPILERS]


def told(value: CheckStarted | CheckDone) -> Payload:
    """Message of a process with this value."""
    return Payload(plain(value))


def subject_of(cls: type[nn.Module], channels: int = 8, **hparams: Any) -> Subject:
    return Subject(registry.of_class(cls), cls, channels, hparams, (11, 9))


def check(name: str, cls: type[nn.Module], channels: int = 8, **hparams: Any) -> CheckResult:
    """The result of one check."""
    (found,) = run_checks(subject_of(cls, channels, **hparams), [c for c in CHECKS if c.name == name])
    return found


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


class Base(nn.Module):
    """A module that mixes everything; the ones below each break one rule."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Conv2d(channels, channels, 1)
        self.value = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weight(x).flatten(2).softmax(2)  # [B, C, n]
        context = (weights * self.value(x).flatten(2)).sum(2)
        return torch.add(x, context[:, :, None, None])


def test_the_good_module_passes_everything() -> None:
    results = list(run_checks(subject_of(Base)))
    assert {result.name: result.outcome for result in results if result.outcome != "passed"} == {
        "typed hyper-parameters": "not applicable",
        "closed forms": "not applicable",
        **({"ONNX": "not applicable"} if "runtimes" not in plugins() or execution("onnxruntime").lacking() else {}),
    }
    one_graph = next(result for result in results if result.name == "torch.compile")
    assert "aot_eager" in one_graph.fact
    assert not one_graph.required


class Needs(Base):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels)


class Starred(Base):
    def __init__(self, channels: int, **options: int) -> None:
        super().__init__(channels)


class Untyped(Base):
    def __init__(self, channels: int, reduction=16) -> None:  # type: ignore[no-untyped-def]  # the type is what lacks
        super().__init__(channels)


class Pair(Base):
    def forward(self, x: Tensor) -> Any:
        return x, x


class Doubles(Base):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x)] * 2, dim=1)


class Swapped(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y.reshape(y.shape[0], y.shape[1], y.shape[3], y.shape[2])


class Widened(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).double()


class Divides(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (x - x)


class OnTheCpu(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.ones(x.shape[1:])


class SquareOnly(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).view(x.shape[0], -1, x.shape[2], x.shape[2])


class NoSinglePosition(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (x.shape[2] * x.shape[3] - 1)


class MixesTheBatch(Base):
    """Hidden behind a factor of zero at the start."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gamma * super().forward(x.softmax(0))


class Remembers(Base):
    """Keeps its outputs by the identity of their inputs."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.kept: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if id(x) not in self.kept:
            self.kept[id(x)] = super().forward(x)
        return self.kept[id(x)]


class RemembersTheLast(Base):
    last: Any = (None, None)

    def forward(self, x: Tensor) -> Tensor:
        if x is not self.last[0]:
            self.last = x, super().forward(x)
        kept: Tensor = self.last[1]
        return kept


class Constant(Base):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)


class StopsTheClock(Base):
    def forward(self, x: Tensor) -> Tensor:
        time.perf_counter_ns = lambda: 0
        return super().forward(x)


def another_softmax(x: Tensor, dim: int) -> Tensor:
    return x.log_softmax(dim).exp()


class ReplacesAMethod(Base):
    def forward(self, x: Tensor) -> Tensor:
        torch.Tensor.softmax = another_softmax  # type: ignore[method-assign, assignment]  # what is tested
        builtins.sum = lambda *values: 0  # type: ignore[assignment]  # what is tested
        return super().forward(x)


class Unused(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.spare = nn.Linear(3, 3)


class Detached(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.detach())


class RootOfZero(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + (y - y).sqrt()


class Random(Base):
    generator = torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(1, generator=self.generator).to(x)


class Counts(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


class Overwrites(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.relu(x, inplace=True))


class Lazy(Base):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "bases"):
            self.register_buffer("bases", torch.rand(x.shape[1], 1, 1, dtype=x.dtype))
        bases: Tensor = self.get_buffer("bases")
        return super().forward(x) * bases


class Hidden(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.scale = torch.rand(1, dtype=torch.float64).item()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class StaysInTrain(Base):
    def train(self, mode: bool = True) -> "StaysInTrain":
        self.weight.train()
        self.training = mode
        return self


class NoHalf(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.ones(x.shape[1:], dtype=torch.float32, device=x.device)


class Overflows(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 1e5 / 1e5


class ReadsMemoryOrder(Base):
    def forward(self, x: Tensor) -> Tensor:
        _, channels, height, width = x.shape
        return super().forward(x) + x.as_strided(x.shape, (channels * height * width, height * width, width, 1))


class Local(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.depthwise(x))


class Pointwise(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y


class Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mul(x, self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None])


class Prints(Base):
    def forward(self, x: Tensor) -> Tensor:
        print("forward called")
        return super().forward(x)


class PrintsPastPython(Base):
    def forward(self, x: Tensor) -> Tensor:
        os.write(2, b"from a library\n")
        return super().forward(x)


class Reseeds(Base):
    def forward(self, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return super().forward(x)


class ReseedsPython(Base):
    def __init__(self, channels: int) -> None:
        random.seed(0)
        super().__init__(channels)


class Threads(Base):
    def forward(self, x: Tensor) -> Tensor:
        torch.set_num_threads(torch.get_num_threads() + 1)
        return super().forward(x)


class OneThread(Base):
    def forward(self, x: Tensor) -> Tensor:
        torch.set_num_threads(1)
        return super().forward(x)


class Branches(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if y.sum().item() > 0 else -y


@register("wrong_forms", title="Wrong", params="2*C**2 + C", macs="2*N*C**2 + N*C")
class WrongParams(Base):
    pass


@register("mixes", title="Mixes", macs="2*N*C**2 + N*C", position_mixing=False)
class SaysUnmixed(Base):
    pass


@register("says_local", title="Local", reach="7*7", macs="2*N*C**2 + N*C")
class SaysLocal(Base):
    pass


@register("right_forms", title="Right", params="2*C**2 + 2*C", macs="2*N*C**2 + N*C")
class RightForms(Base):
    pass


class Float32Only(Base):
    def forward(self, x: Tensor) -> Tensor:
        weights = self.weight(x).flatten(2).softmax(2)
        bases = torch.eye(x.shape[1])  # of the default dtype
        context = ((bases @ weights) * self.value(x).flatten(2)).sum(2)
        return torch.add(x, context[:, :, None, None])


def test_a_fixed_dtype_is_one_failure() -> None:
    core = [each for each in CORE if each.name != "closed forms"]
    failed = [result for result in run_checks(subject_of(Float32Only), core) if result.outcome == "failed"]
    assert [result.name for result in failed] == ["other dtypes"]


class Tokens(Base):
    def forward(self, x: Tensor) -> Tensor:
        _, _, channels = x.shape
        return x[:, :, :channels]


def test_a_module_of_tokens_is_told_to_be_wrapped() -> None:
    hint = check("shape and dtype", Tokens).hint
    assert hint.startswith("it does not take a map alone: `ctxbench new --around ")
    assert ":Tokens` prints a module to put around it" in hint


def test_a_constructor_may_accept_any_argument() -> None:
    found = check("constructs", Starred)
    assert (found.outcome, found.fact) == ("passed", "Starred(8); what goes through options cannot be set")


@pytest.mark.parametrize(
    ("name", "cls", "fact"),
    [
        ("constructs", Needs, "needs more than channels: width"),
        ("typed hyper-parameters", Untyped, "no type for reduction"),
        ("shape and dtype", Pair, "forward returns tuple"),
        ("shape and dtype", Doubles, "[2, 8, 11, 9] gives [2, 16, 11, 9]"),
        ("shape and dtype", Swapped, "[2, 8, 11, 9] gives [2, 8, 9, 11]"),
        ("shape and dtype", Widened, "float32 in, float64 out"),
        ("shape and dtype", Divides, "NaN or infinity"),
        ("device", OnTheCpu, "device"),
        ("odd and non-square", SquareOnly, "1x65: [2, 8, 1, 65] gives [2, 520, 1, 1]"),
        ("1x1", NoSinglePosition, "1x1: the output holds NaN or infinity"),
        ("batch items", MixesTheBatch, "item 0 of the batch changes by"),
        ("gradients", Unused, "no gradient reaches spare.weight, spare.bias"),
        ("gradients", Detached, "no gradient reaches the input"),
        ("gradients", RootOfZero, "the gradient of the input, weight.weight, weight.bias and 2 more holds NaN"),
        ("repeatable", Random, "two eval forward passes with the same seed differ by"),
        ("keeps its state", Counts, "an eval forward pass changes seen"),
        ("keeps its state", Overwrites, "forward changes its input in place"),
        ("keeps its state", Lazy, "an eval forward pass adds bases"),
        ("state_dict", Lazy, "Unexpected key(s) in state_dict"),
        ("state_dict", Hidden, "after the state dict is saved and loaded, the output differs by"),
        ("train and eval", StaysInTrain, "eval() does not reach weight, value"),
        ("other dtypes", NoHalf, "bfloat16 in, float32 out"),
        ("other dtypes", Overflows, "float16 holds NaN or infinity"),
        ("channels_last", ReadsMemoryOrder, "the output differs by"),
        ("reach", SaysLocal, "a change at the centre reaches 1023 of 1023 positions (100%)"),
        ("position mixing", Squeeze, "global, but without position mixing"),
        ("position mixing", SaysUnmixed, "far positions has different effects"),
        ("closed forms", WrongParams, "params at [2, 8, 11, 9]: counted 144, the closed form gives 136"),
        ("prints nothing", Prints, "it prints 'forward called'"),
        ("prints nothing", PrintsPastPython, "it prints 'from a library'"),
        ("global state", Reseeds, "torch's generator is reseeded"),
        ("global state", ReseedsPython, "Python's random is reseeded"),
        ("global state", Threads, "torch.get_num_threads changes from"),
        ("global state", OneThread, "torch.get_num_threads changes from 2 to 1"),
        ("reads its input", Remembers, "it gives the output of the input before"),
        ("reads its input", RemembersTheLast, "it gives the output of the input before"),
        ("replaces nothing", StopsTheClock, "it replaces time.perf_counter_ns"),
        ("replaces nothing", ReplacesAMethod, "it replaces builtins.sum, torch.Tensor.softmax"),
        ("torch.compile", Branches, "cannot be captured as one graph"),
        ("torch.export", Branches, "torch.export: "),
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
    ("cls", "mark", "fact"),
    [
        (Local, "local: 7 x 7", "local: a change at the centre reaches 49 of 1023 positions (5%), a 7x7 window in a"),
        (Pointwise, "local: 1 x 1", "local: a change at a position reaches no other position"),
        (Base, "", "a change at one corner reaches 1023 of 1023 positions (100%), the opposite corner too"),
    ],
)
def test_how_far_a_block_reaches_is_a_fact(cls: type[nn.Module], mark: str, fact: str) -> None:
    found = check("reach", cls)
    assert (found.outcome, found.mark, found.fact[: len(fact)]) == ("passed", mark, fact)


class NoSuper(Base):
    def __init__(self, channels: int) -> None:
        self.weight = nn.Conv2d(channels, channels, 1)


class NoChannels(Base):
    def __init__(self) -> None:
        super().__init__(8)


class Of24Channels(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(24)


class OnCuda(Base):
    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError("Torch not compiled with CUDA enabled")


class Guided(Base):
    def forward(self, x: Tensor, guide: Tensor) -> Tensor:  # type: ignore[override]  # one more argument
        return super().forward(x) + guide


class Halves(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :, ::2, ::2]


class Several(Base):
    def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]  # as strangers do
        return {"out": super().forward(x)}


class Scores(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean((2, 3))


class Nothing(Base):
    def forward(self, x: Tensor) -> None:  # type: ignore[override]  # as strangers do
        super().forward(x)


class Net(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, classes, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


@pytest.mark.parametrize(
    ("name", "cls", "hint"),
    [
        ("constructs", NoSuper, "call super().__init__() first in the constructor"),
        ("constructs", NoChannels, "give the constructor an argument `channels`, before all others"),
        (
            "shape and dtype",
            Of24Channels,
            "it is made for 24 channels: verify --channels 24 (Python: channels=24), compare --shape 1,24,64,64",
        ),
        (
            "shape and dtype",
            OnCuda,
            "do not call .cuda(): make tensors with device=x.device, or register them as buffers",
        ),
        ("shape and dtype", Guided, "it does not take a map alone: `ctxbench new --around "),
        ("shape and dtype", Halves, "return B, H and W as they came: enlarge the output again at the end of forward"),
        ("shape and dtype", Overwrites, "write x = x + 1 instead of x += 1, or begin with x = x.clone()"),
        ("shape and dtype", Several, f"return one tensor [B, C', H, W]; {NETWORK}. The later checks did not run."),
        ("shape and dtype", Scores, f"return [B, C', H, W]; {NETWORK}"),
        ("shape and dtype", Nothing, "return one tensor [B, C', H, W]. The later checks did not run."),
        ("shape and dtype", Net, f"it takes no number of channels; {NETWORK}"),
    ],
)
def test_a_hint_says_what_to_type(name: str, cls: type[nn.Module], hint: str) -> None:
    found = check(name, cls)
    assert found.misleads
    assert found.hint.startswith(hint)


def test_random_numbers_in_eval_are_told() -> None:
    class Drops(Base):
        def forward(self, x: Tensor) -> Tensor:
            return functional.dropout(super().forward(x), 0.5)

    found = check("repeatable", Drops)
    assert (found.outcome, found.mark) == ("passed", "random")
    assert "dropout needs self.training" in found.fact
    assert check("channels_last", Drops).outcome in ("passed", "not applicable")
    assert check("repeatable", Base).mark == ""


class Windows(Base):
    """Attends in windows of 8 x 8, and takes no other maps."""

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        parts = x.view(batch, channels, height // 8, 8, width // 8, 8).permute(0, 2, 4, 1, 3, 5)
        mixed = super().forward(parts.reshape(-1, channels, 8, 8)).view(parts.shape)
        return mixed.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


@pytest.mark.parametrize(
    ("cls", "facts"),
    [
        (
            Windows,
            [
                "[2, 8, 16, 24] to [2, 8, 16, 24], float32 kept; refuses 11x9: RuntimeError: shape",
                "it refuses 9x13, 13x9, 1x65, 65x1: RuntimeError: shape",
                "local: a change at the centre reaches 64 of 1536 positions (4%), a 8x8 window in a 32x48 input",
                "no far position has an effect on the output",
            ],
        ),
        (
            SquareOnly,
            [
                "[2, 8, 8, 8] to [2, 8, 8, 8], float32 kept; square maps only; refuses 11x9: RuntimeError: shape",
                "1x65: [2, 8, 1, 65] gives [2, 520, 1, 1]",
                "a change at one corner reaches 1024 of 1024 positions (100%), the opposite corner too",
                "the same change at 9 far positions has different effects",
            ],
        ),
    ],
)
def test_a_block_that_refuses_sizes_is_checked_at_those_that_it_takes(cls: type[nn.Module], facts: list[str]) -> None:
    subject = replace(subject_of(cls), other_sizes=contract.OTHER_SIZES)
    names = ("shape and dtype", "odd and non-square", "reach", "position mixing")
    found = list(run_checks(subject, [c for c in CHECKS if c.name in names]))
    assert [each.fact[: len(fact)] for each, fact in zip(found, facts, strict=True)] == facts
    assert not any(each.misleads for each in found)


@pytest.mark.parametrize(("code", "side"), [((1, 8, 20, 20), 20), ((1, 400, 8), 20), ((1, 8, 8, 8), 8)])
def test_a_block_with_a_position_code_is_checked_at_the_size_of_that(code: tuple[int, ...], side: int) -> None:
    class Fixed(Base):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.code = nn.Parameter(torch.zeros(code))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + self.code.reshape(1, 8, side, side))

    subject = replace(subject_of(Fixed), other_sizes=contract.OTHER_SIZES)
    (found,) = run_checks(subject, [c for c in CHECKS if c.name == "shape and dtype"])
    shape = f"[2, 8, {side}, {side}]"
    assert found.fact.startswith(f"{shape} to {shape}, float32 kept; refuses 11x9: RuntimeError: The size of tensor")
    assert found.mark == ("takes 20x20" if side == 20 else "")


def test_the_hint_names_the_closed_form_that_is_wrong() -> None:
    hint = "params='2*C**2 + C' in @register is wrong; `ctxbench show` prints both"
    assert check("closed forms", WrongParams).hint == hint


class Spectrum(nn.Module):
    """Has no weight at all, as the transform of FNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        out: Tensor = torch.fft.fft2(wide, norm="ortho").real
        return out.to(x.dtype)


@pytest.mark.parametrize("name", ["gradients", "prints nothing", "global state", "replaces nothing", "torch.compile"])
def test_a_module_without_weights_meets_the_contract(name: str) -> None:
    assert check(name, Spectrum).outcome == "passed"


class NeedsOneOfTwo(Base):
    def __init__(self, channels: int, window: int | None = None) -> None:
        super().__init__(channels)
        assert window, "give a window"


def test_a_constructor_that_asks_for_a_hyper_parameter_is_told_how_to_give_it() -> None:
    found = check("constructs", NeedsOneOfTwo)
    assert found.fact.startswith("AssertionError: give a window (test_contract.py, line ")
    assert found.hint.startswith("fix it, or give window another value: --set window=VALUE (Python: ")


class Volume(Base):
    """Has weights of five dimensions, which have no channels_last format."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.along = nn.Conv3d(1, 1, (1, 3, 3), padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.along(x[:, None])[:, 0])


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("channels_last", Volume),
        ("reads its input", Constant),
        ("replaces nothing", Base),
        ("reach", Squeeze),
        ("reach", Base),
        ("position mixing", Base),
        ("closed forms", RightForms),
    ],
)
def test_what_holds_passes(name: str, cls: type[nn.Module]) -> None:
    assert check(name, cls).outcome == "passed"


@pytest.mark.parametrize(("key", "hparams"), [("se", {}), ("aspp", FEW["aspp"]), ("gc", {"pooling": "avg"})])
def test_a_declared_lack_of_position_mixing_is_no_note(key: str, hparams: dict[str, Any]) -> None:
    entry = registry.get(key)
    assert not entry.mixes_positions(hparams)
    wanted = [c for c in CHECKS if c.name == "position mixing"]
    (found,) = run_checks(Subject(entry, entry.load(), 32, hparams, (11, 9)), wanted)
    assert found.outcome == "passed"
    assert found.fact.startswith("as declared, global, but without position mixing")


def test_regions_that_are_enlarged_with_aligned_corners_mix_positions() -> None:
    entry = registry.get("ppm")
    wanted = [c for c in CHECKS if c.name == "position mixing"]
    (found,) = run_checks(Subject(entry, entry.load(), 16, {"fuse": False}, (11, 9)), wanted)
    assert found.outcome == "passed"
    assert "far positions has different effects" in found.fact


def test_a_one_step_gradient_is_reported_and_does_not_make_a_module_local() -> None:
    entry = registry.get("ham_nmf")
    (found,) = run_checks(
        Subject(entry, entry.load(), 8, {"rank": 4}, (11, 9)), [c for c in CHECKS if c.name == "reach"]
    )
    assert found.outcome == "passed"
    assert "reaches 1023 of 1023 positions (100%)" in found.fact
    assert "the gradient of the centre reaches 1 of 1023 positions (0%), since a part" in found.fact


def test_a_module_may_refuse_a_size_with_a_sentence_of_its_own() -> None:
    entry = registry.get("ham_nmf")
    subject = Subject(entry, entry.load(), 8, {"rank": 4}, (11, 9))
    (found,) = run_checks(subject, [c for c in CHECKS if c.name == "1x1"])
    assert found.outcome == "not applicable"
    assert found.fact.startswith("it refuses 1x1: ValueError: rank = 4 is more than the 1 columns")
    assert found.fact.endswith("; it takes 11x9")


def test_a_module_of_one_size_is_checked_at_that_size() -> None:
    entry = registry.get("focused_linear")
    subject = Subject(entry, entry.load(), 16, {"positions": 42}, (6, 7))
    wanted = ("shape and dtype", "odd and non-square", "reach", "closed forms")
    results = {result.name: result for result in run_checks(subject, [c for c in CHECKS if c.name in wanted])}
    assert [name for name, result in results.items() if result.broken] == []
    assert "reaches 42 of 42 positions" in results["reach"].fact
    assert "refuses 9x13" in results["odd and non-square"].fact


def test_zero_gradients_behind_a_closed_gate_are_named_and_pass() -> None:
    linear = registry.get("linear").load()
    assert isinstance(linear, type)
    found = check("gradients", linear)
    assert found.outcome == "passed"
    assert "exactly zero at initialisation: query.weight" in found.fact


def test_the_checks_after_a_vital_failure_do_not_run() -> None:
    results = list(run_checks(subject_of(Pair), CORE))
    assert [result.name for result in results] == ["constructs", "typed hyper-parameters", "shape and dtype"]
    assert results[-1].hint.endswith(". The later checks did not run.")


def test_the_generators_and_settings_are_left_as_they_were() -> None:
    torch.manual_seed(3)
    random.seed(3)
    states = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    list(run_checks(subject_of(Threads), CORE))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), torch.get_num_threads()) == states[1:]


def test_every_check_runs_in_one_thread_but_the_one_that_sees_their_number_change() -> None:
    seen: dict[str, set[int]] = {}
    running = ""

    class Counts(Base):
        def forward(self, x: Tensor) -> Tensor:
            seen.setdefault(running, set()).add(torch.get_num_threads())
            return super().forward(x)

    def start(check: Check) -> None:
        nonlocal running
        running = check.name

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        list(run_checks(subject_of(Counts), CORE, start))
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


def test_the_pytest_helper_passes_a_good_module_and_names_what_is_broken() -> None:
    assert all(not result.broken for result in assert_context_module(Base, channels=8))
    with pytest.raises(AssertionError) as caught:
        assert_context_module(Random, channels=8)
    assert str(caught.value).startswith("Random does not meet the contract\nbatch items: item 0 of the batch changes")
    assert "\n    hint: use only torch's default random generator" in str(caught.value)
    with pytest.raises(UsageError, match="unknown hyper-parameter of 'Base' 'rank'"):
        assert_context_module(Base, channels=8, rank=3)


def test_the_template_passes_as_it_is_and_is_never_overwritten(tmp_path: Path) -> None:
    reference = template.write(tmp_path / "my_module.py")
    assert reference.endswith("my_module.py:MyModule")
    assert len((tmp_path / "my_module.py").read_text().splitlines()) < 60
    with pytest.raises(UsageError, match="already exists and was not changed; choose another file name"):
        template.write(tmp_path / "my_module.py")
    entry = registry.get(reference)
    results = list(run_checks(Subject(entry, entry.load(), 16, {}, contract.SIZE), CORE))
    assert [result.name for result in results if result.outcome != "passed"] == []


def test_a_module_around_a_block_of_tokens_works_as_it_is(tmp_path: Path) -> None:
    code = "import torch\n\n\nclass Block(torch.nn.Linear):\n    def __init__(self, d):\n        super().__init__(d, d)"
    (tmp_path / "block_of_tokens.py").write_text(code, encoding="utf-8")
    (tmp_path / "around.py").write_text(template.around(f"{tmp_path / 'block_of_tokens.py'}:Block"), encoding="utf-8")
    entry = registry.get(f"{tmp_path / 'around.py'}:BlockOfMaps")
    (found,) = run_checks(Subject(entry, entry.load(), 8, {}, (11, 9)), [c for c in CHECKS if c.name == "reach"])
    assert found.mark == "local: 1 x 1"
    (tmp_path / "__init__.py").touch()
    assert "\nfrom .block_of_tokens import Block\n" in template.around(f"{tmp_path / 'block_of_tokens.py'}:Block")
    with pytest.raises(UsageError, match=r"--around block\.py is not path\.py:Class"):
        template.around("block.py")


@pytest.mark.parametrize(
    ("name", "class_name", "sentence"),
    [
        ("sa.py", None, "registry already has a module 'sa'"),
        ("mine", None, "is not a Python file"),
        ("/", None, "is not a Python file"),
        ("3d.py", None, "'3d' is not a valid name for a class"),
        ("mine.py", "a b", "'a b' is not a valid name for a class"),
        ('mi"ne.py', None, "letters, digits"),
        ("none/mine.py", None, "No such file"),
    ],
)
def test_the_template_refuses_with_a_sentence(tmp_path: Path, name: str, class_name: str | None, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        template.write(tmp_path / name, class_name)


MISBEHAVING = """
import itertools, os, signal, time
import torch
from torch import nn

class Fine(nn.Module):
    def __init__(self, channels: int, *, width: int = 4):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
    def forward(self, x):
        return self.conv(x) + x.mean((2, 3), keepdim=True)

def shorten():
    # The clock of the check runs, which the kernel reads in steps; a hundredth of a second is left on it now.
    left, _ = signal.getitimer(signal.ITIMER_PROF)
    assert 0 < left < 601
    signal.setitimer(signal.ITIMER_PROF, 0.01)

class LoopsInPython(Fine):
    def forward(self, x):
        if x.shape[2:] == (1, 1):
            shorten()
            while True:
                pass
        return super().forward(x)

class LoopsInC(Fine):
    def forward(self, x):
        if x.shape[2:] == (1, 1):
            shorten()
            sum(itertools.repeat(0))
        return super().forward(x)

class LoopsTwice(LoopsInPython):
    def forward(self, x):
        if x.shape[2] == 9:
            shorten()
            sum(itertools.repeat(0))
        return super().forward(x)

class LoopsFromTheStart(Fine):
    def __init__(self, channels: int):
        shorten()
        sum(itertools.repeat(0))

class Sleeps(Fine):
    def forward(self, x):
        if x.shape[2:] == (1, 1):
            time.sleep(1e6)
        return super().forward(x)

class Leaves(Fine):
    def forward(self, x):
        os._exit(0)

class Crashes(Fine):
    def forward(self, x):
        print("about to crash", flush=True)
        os.abort()

class Eats(Fine):
    def forward(self, x):
        torch.ones(2**34)
        return x
"""


@pytest.fixture(scope="module")
def server(one_server: ForkServer) -> ForkServer:
    return one_server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "misbehaving.py"
    path.write_text(MISBEHAVING, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "fact", "hint"),
    [
        ("Leaves", "the process ended with exit code 0", "it printed nothing"),
        ("Crashes", f"killed by {signal.SIGABRT.name}", "it last printed: about to crash"),
        ("Eats", "out of memory", "fix it"),
    ],
)
@pytest.mark.processes
def test_the_engine_holds_what_hangs_crashes_or_eats_memory(
    server: ForkServer, file: Path, name: str, fact: str, hint: str
) -> None:
    results = verify(f"{file}:{name}", server, channels=4, timeout_s=600)
    assert [result.name for result in results if result.broken] == ["shape and dtype"]
    assert fact in results[-1].fact
    assert hint in results[-1].hint


@pytest.mark.parametrize("name", ["LoopsInPython", "LoopsInC"])
@pytest.mark.processes
def test_a_check_whose_processor_time_is_used_up_is_not_decided_and_the_others_run(
    server: ForkServer, file: Path, name: str
) -> None:
    results = verify(f"{file}:{name}", server, channels=4, timeout_s=600, compilers=False)
    assert [result.name for result in results] == [c.name for c in CORE]
    (stopped,) = [result for result in results if result.outcome == "not decided"]
    assert stopped.name == "1x1"
    assert stopped.fact == "still running after 600 s of processor time"
    assert stopped.hint.endswith("or allow more: verify --timeout 3000 (Python: timeout_s=3000)")
    assert judged(results) == "not decided"


@pytest.mark.parametrize(
    ("name", "undecided"), [("LoopsTwice", ["odd and non-square", "1x1"]), ("LoopsFromTheStart", ["constructs"])]
)
@pytest.mark.processes
def test_after_two_stopped_checks_or_one_that_the_others_need_no_other_runs(
    server: ForkServer, file: Path, name: str, undecided: list[str]
) -> None:
    results = verify(f"{file}:{name}", server, channels=4, timeout_s=600, compilers=False)
    assert [result.name for result in results if result.outcome == "not decided"] == undecided
    assert results[-1].name == undecided[-1]
    assert results[-1].hint.endswith(". The later checks did not run.")
    assert not any(result.broken for result in results)


@pytest.mark.processes
def test_a_module_that_sleeps_is_stopped_by_the_wall_s_clock_and_not_decided(
    server: ForkServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = EngineClock(told(CheckStarted("1x1", required=True, vital=False)))
    monkeypatch.setattr("ctxbench.base.clocks.here", clock)

    class Timed:
        def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
            def listen(message: Reply) -> None:
                clock(message)
                on_message(message)

            return server.run(task, listen, timeout_s)

    results = verify(f"{file}:Sleeps", Timed(), channels=4, timeout_s=150, compilers=False)
    assert [result.name for result in results] == [c.name for c in CORE]
    (stopped,) = [result for result in results if result.outcome == "not decided"]
    assert (stopped.name, stopped.fact) == ("1x1", "the process was still running after 750 s")


def test_checks_that_only_inform_may_be_stopped_as_often_as_there_are_and_decide_nothing() -> None:
    runs: list[tuple[list[Reply], Exit]] = [
        ([told(CheckStarted(name, required=False, vital=False))], Exit(0, signal.SIGPROF, False, "")) for name in "abc"
    ]
    passed = CheckResult("d", "passed", "well")
    runs.append(([told(CheckStarted("d", required=True, vital=False)), told(CheckDone(passed))], Exit(0, 0, False, "")))
    played = iter(runs)

    class Played:
        def run(self, task: Task, on_message: Callable[[Reply], None], timeout_s: float | None = None) -> Exit:
            said, ended = next(played)
            for message in said:
                on_message(message)
            return ended

    begun: list[str] = []
    results = verify("sa", Played(), on_start=begun.append)
    assert begun == [*"abcd"]
    assert [(each.name, each.outcome) for each in results] == [
        *((name, "not decided") for name in "abc"),
        ("d", "passed"),
    ]
    assert judged(results) == "met"


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


@pytest.mark.processes
def test_results_arrive_one_by_one_and_hyperparameters_are_passed_on(server: ForkServer, file: Path) -> None:
    seen: list[CheckResult] = []
    results = verify(f"{file}:Fine", server, channels=4, hparams={"width": 7}, compilers=False, on_result=seen.append)
    assert seen == results
    assert results[0].fact == "Fine(4, width=7)"
    assert "misbehaving" not in sys.modules
    assert not any(result.broken for result in results)


@pytest.mark.parametrize(
    ("reference", "hparams", "sentence"),
    [
        ("{file}:Finn", {}, "did you mean 'Fine'"),
        ("{file}:Fine", {"widht": 3}, "did you mean 'width'"),
        ("{file}:Fine", {"width": "wide"}, "must be int"),
        ("nothing", {}, "unknown module 'nothing'"),
    ],
)
@pytest.mark.processes
def test_a_wrong_name_is_a_usage_error(
    server: ForkServer, file: Path, reference: str, hparams: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        verify(reference.format(file=file), server, channels=4, hparams=hparams)
    with pytest.raises(UsageError, match="at least 1"):
        verify("sa", server, size=(0, 3))


def test_a_line_says_verdict_name_fact_and_hint() -> None:
    failed = CheckResult("global", "failed", "local", "widen it")
    note = CheckResult("position mixing", "failed", "none", "correct if intended", required=False)
    assert lines.line(failed).plain.split() == ["FAILED", "global", "local", "hint:", "widen", "it"]
    assert lines.verdict(note) == "note"
    assert lines.summary("mine", [note]).plain == "mine meets the contract: 1 note"
    assert lines.summary("mine", [note, failed]).plain == "mine does not meet the contract: 1 failed, 1 note"
    stopped = CheckResult("1x1", "not decided", "still running after 60 s of processor time", "allow more")
    assert lines.line(stopped).plain.startswith("undecided 1x1   ")
    sentence = "it is not decided whether mine meets the contract: 1 undecided, 1 note"
    assert lines.summary("mine", [note, stopped]).plain == sentence
    assert lines.summary("mine", [failed, stopped]).plain == "mine does not meet the contract: 1 failed, 1 undecided"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([("passed", True), ("failed", False)], 0),
        ([("passed", True), ("not decided", False)], 0),
        ([("passed", True), ("not decided", True)], 3),
        ([("not decided", True), ("failed", True)], 1),
    ],
)
def test_the_exit_code_of_verify_says_whether_the_contract_is_met(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, outcomes: list[tuple[Any, bool]], code: int
) -> None:
    results = [CheckResult("1x1", outcome, "", required=required) for outcome, required in outcomes]
    monkeypatch.setattr("ctxbench.plugins.verify.function.check_contract", lambda *arguments, **options: results)
    assert command("verify", "sa").returncode == code
