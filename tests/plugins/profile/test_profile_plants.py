"""Planted costs: each is booked to its line and its submodule, whatever way the code takes there."""

import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ctxbench import registry
from ctxbench.base.call_sites import AGAIN
from ctxbench.base.mode import MODES, Mode
from ctxbench.meta.recorder import Recorder
from ctxbench.plugins.memory.one_pass import run_pass
from ctxbench.plugins.profile.advice import advice
from ctxbench.plugins.profile.child import _of_names
from ctxbench.plugins.profile.costs import UNKNOWN, Roof, Span
from ctxbench.plugins.profile.measured import placed, spans_of, torch_profiler
from ctxbench.plugins.profile.profile import Pass, Profile
from ctxbench.plugins.profile.static import known
from ctxbench.plugins.profile.tables import table
from ctxbench.plugins.profile.texts import sentences

ROOF = Roof(1e12, 1e11, 1e-6)
HEAD = """
import functools
import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
import helper_HELPER as helper


class Small(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return self.conv(x)


"""
HELPER = """
import functools
import torch


def quadratic(x):
    row = x.flatten(2)
    return (row @ (row.mT @ row).softmax(-1)).view_as(x)  # FAR


def decorated(function):
    @functools.wraps(function)
    def run(self, x):
        return function(self, x).cumsum(1)  # FAR
    return run
"""


@dataclass(frozen=True)
class Plant:
    """A block's own lines: those of its `__init__` and of its class; the operator that is at the line `# HERE`."""

    operator: str
    body: str
    init: str = ""
    module: str = ""
    far: bool = False
    before: str = ""
    gradient: bool = True  # the marked line has one


FORWARD = "def forward(self, x):\n"
PLANTS = {
    "a loop": Plant(
        "_softmax",
        FORWARD + "    return sum(row.softmax(1) for row in x.unbind(2)).unsqueeze(2) + self.conv(x)  # HERE",
    ),
    "needless copies": Plant(
        "clone",
        FORWARD
        + "    x = x.transpose(1, 2).contiguous().transpose(1, 2).contiguous()  # HERE\n    return self.conv(x)",
    ),
    "float64": Plant("mul", FORWARD + "    y = (self.conv(x).double() * 2).float()  # HERE\n    return y"),
    "a quadratic map in another file": Plant("bmm", FORWARD + "    return helper.quadratic(self.conv(x))", far=True),
    "a softmax over a large axis": Plant(
        "_softmax", FORWARD + "    y = self.conv(x).flatten(1)\n    return y.softmax(1).view_as(x)  # HERE"
    ),
    "a wide kernel beside a dense one": Plant(
        "convolution",
        FORWARD + "    return self.dense(x) + self.wide(x)  # HERE",
        "self.dense = nn.Conv2d(channels, channels, 1)\n"
        "self.wide = nn.Conv2d(channels, channels, 15, padding=7, groups=channels)",
        "wide",
    ),
    "a comprehension": Plant(
        "mm",
        FORWARD + "    y = torch.stack([each.flatten(1).mT @ each.flatten(1) for each in self.conv(x)])  # HERE\n"
        "    return x + y.mean()",
    ),
    "a lambda": Plant("erf", FORWARD + "    return self.act(self.conv(x))", "self.act = lambda x: x.erf()  # HERE"),
    "a decorator of another file": Plant(
        "cumsum", "@helper.decorated\n" + FORWARD + "    return self.conv(x)", far=True
    ),
    "a shared submodule": Plant(
        "convolution",
        FORWARD + "    return self.b(self.a(x)) + self.a.forward(x)",
        "self.a = self.b = Small(channels)",
        "a.conv",
        gradient=False,
    ),
    "a script function": Plant(
        "mm",
        FORWARD + "    return x + scripted(self.conv(x).flatten(1))  # HERE",
        before="@torch.jit.script\ndef scripted(x):\n    return (x @ x.mT).sum()\n",
    ),
    "a custom function": Plant(
        "mul",
        FORWARD + "    return Slow.apply(self.conv(x))",
        before="class Slow(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        return x * 1.0  # HERE\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g.erf()\n",
    ),
    "a Sequential": Plant(
        "gelu",
        FORWARD + "    return self.body(x)",
        "self.body = nn.Sequential(Small(channels), Gelu())",
        "body.1",
        before="class Gelu(nn.Module):\n    def forward(self, x):\n        return F.gelu(x)  # HERE\n",
    ),
    "a hook": Plant(
        "erf",
        FORWARD + "    return self.two(x)",
        "self.two = Small(channels)\nself.two.register_forward_hook(lambda m, a, y: y.erf())  # HERE",
        "two",
    ),
    "a call of forward": Plant(
        "convolution",
        FORWARD + "    return self.one.forward(x)",
        "self.one = nn.Conv2d(channels, channels, 3, padding=1)",
        "one",
    ),
    "vmap": Plant("erf", FORWARD + "    return torch.vmap(lambda y: y.erf())(self.conv(x))  # HERE"),
    # eight of our own
    "a nested function": Plant(
        "cumsum", FORWARD + "    def inner(y):\n        return y.cumsum(1)  # HERE\n    return inner(self.conv(x))"
    ),
    "a partial": Plant(
        "pow",
        FORWARD + "    return self.act(self.conv(x))",
        "self.act = functools.partial(cubed, power=3)",
        before="def cubed(x, power):\n    return x.abs() ** power  # HERE\n",
    ),
    "a property": Plant(
        "tanh",
        "@property\ndef weight(self):\n    return self.conv.weight.tanh()  # HERE\n"
        + FORWARD
        + "    return F.conv2d(x, self.weight)",
    ),
    "a parent's forward": Plant(
        "convolution",
        FORWARD + "    return super().forward(x)",
        "self.conv = nn.Conv2d(channels, channels, 3, padding=1)",
        "conv",
    ),
    "einsum": Plant(
        "bmm", FORWARD + "    y = self.conv(x)\n    return torch.einsum('bchw,bdhw->bcd', y, y).mean() + x  # HERE"
    ),
    "an index": Plant(
        "index", FORWARD + "    order = torch.arange(x.shape[1] - 1, -1, -1)\n    return self.conv(x)[:, order]  # HERE"
    ),
    "a module list": Plant(
        "convolution",
        FORWARD + "    for layer in self.layers:\n        x = layer(x)  # HERE\n    return x",
        "self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(3))",
        "layers.2",
    ),
    "a layer that is called twice": Plant(
        "convolution", FORWARD + "    x = self.conv(x)\n    return self.conv(x)  # HERE", module="conv"
    ),
}


def built(plant: Plant, folder: Path, name: str = "plant") -> tuple[nn.Module, Tensor]:
    """The block, on the CPU."""
    unique = f"{abs(hash(str(folder)))}"  # a file is imported once
    (folder / f"helper_{unique}.py").write_text(HELPER, encoding="utf-8")
    init = textwrap.indent(plant.init, " " * 8)
    body = textwrap.indent(plant.body, " " * 4)
    text = f"{HEAD.replace('HELPER', unique)}{plant.before}\n\nclass Block(Small):\n"
    text += f"    def __init__(self, channels):\n        super().__init__(channels)\n{init}\n\n{body}\n"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return registry.get(f"{path}:Block").build(8, {}), torch.randn(2, 8, 6, 5)


def marked(folder: Path, far: bool) -> set[str]:
    """The lines that have the mark, as they are told."""
    files = folder.glob("helper_*.py") if far else folder.glob("plant.py")
    mark = "# FAR" if far else "# HERE"
    return {
        f"{path.name}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if mark in line
    }


def spans(module: nn.Module, x: Tensor, mode: Mode) -> tuple[list[Span], Recorder]:
    module.train(mode == "train")
    with Recorder(module) as recorder:
        run_pass(module, (x,), mode)
    step = lambda: run_pass(module, (x,), mode)  # noqa: E731  # what is profiled
    return spans_of(*torch_profiler("cpu")(step), placed(recorder.calls)), recorder


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plant", [pytest.param(plant, id=name) for name, plant in PLANTS.items()])
def test_a_planted_cost_is_at_its_line(
    plant: Plant, mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module, x = built(plant, tmp_path)
    found, _ = spans(module, x, mode)
    assert not [span for span in found if span.place == UNKNOWN]
    lines = marked(tmp_path, plant.far)
    own = [span for span in found if span.phase == "forward" and span.operator.removeprefix("aten::") == plant.operator]
    assert own
    if lines:
        assert lines & {str(span.place.own) for span in own}
    if plant.module:
        assert plant.module in {span.place.module for span in own}
    if mode == "train" and lines and plant.gradient:
        assert lines & {str(span.place.own) for span in found if span.phase == "backward"}


def test_a_shared_submodule_has_all_its_calls_and_its_other_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module, x = built(PLANTS["a shared submodule"], tmp_path)
    found, recorder = spans(module, x, "infer")
    calls = [span.place.module for span in found if span.operator == "aten::convolution"]
    assert calls == ["a.conv"] * 3
    assert _of_names(module, recorder) == [
        "a is b, too: its row has the calls under each name.",
        "a is called by its forward, past its hooks.",
    ]
    costs = known(module, x, mode="infer", device="cpu", dtype="float32", autocast=None, roof=ROOF).costs
    tree = {part.name: part.macs for part in Pass("infer", costs.all, ROOF, (1.0, 1.0, 1.0)).parts("submodule")}
    assert tree["a.conv"] == tree["a"] == tree[""] == 3 * 2 * 8 * 8 * 30


# A checkpoint is around a submodule, a bound method, a lambda, or a Sequential.
AROUND = {
    "a submodule": ("checkpoint(self.inner, x, use_reentrant={})", "inner."),
    "a bound method": ("checkpoint(self.both, x, use_reentrant={})", "inner."),
    "a lambda": ("checkpoint(lambda y: self.inner(y), x, use_reentrant={})", "inner."),
    "a Sequential": ("self.wrapped(x)", "wrapped.inner."),
}
CHECKPOINT = """
class Inner(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.big = nn.Conv2d(channels, channels, 3, padding=1)
        self.small = nn.Conv2d(channels, 1, 1)

    def forward(self, x):
        y = self.big(x).relu()  # BIG
        return self.small(y)  # SMALL


class Wrapped(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = checkpoint(layer, x, use_reentrant=REENTRANT)
        return x
"""


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("around", AROUND)
def test_what_a_checkpoint_computes_again_is_booked_to_the_call_that_computes_it(
    around: str, reentrant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    call, path = AROUND[around]
    plant = Plant(
        "convolution",
        f"def both(self, x):\n    return self.inner(x)\n{FORWARD}    return {call.format(reentrant)} + x",
        "self.inner = Inner(channels)" if "wrapped" not in path else
        "self.wrapped = Wrapped(); self.wrapped.add_module('inner', Inner(channels))",
        before=CHECKPOINT.replace("REENTRANT", str(reentrant)),
    )  # fmt: skip
    module, x = built(plant, tmp_path)
    x.requires_grad_()  # as reentrant checkpoints need
    big, small = 2 * 30 * 8 * 8 * 9, 2 * 30 * 8
    costs = known(module, x, mode="train", device="cpu", dtype="float32", autocast=None, roof=ROOF).costs
    taken = Pass("train", costs.all, ROOF, (1.0, 1.0, 1.0))
    tree = {part.name: part.macs for part in taken.parts("submodule")}
    # forward, again, and the gradients of input and weight
    assert tree[f"{path}big"] == 4 * big
    # a checkpoint that is not reentrant ends once all that is needed is there
    assert tree[f"{path}small"] in (3 * small, 4 * small)
    again = {part.name: part.macs for part in taken.parts("line") if part.name.endswith(" again") and part.macs}
    source = (tmp_path / "plant.py").read_text(encoding="utf-8").splitlines()
    lines = {
        mark: f"plant.py:{next(n for n, line in enumerate(source, 1) if mark in line)}" for mark in ("BIG", "SMALL")
    }
    assert again[f"{lines['BIG']} again"] == big
    found, _ = spans(module, x, "train")
    assert not [span for span in found if span.place == UNKNOWN]
    computed = [span for span in found if span.place.node == AGAIN and span.operator == "aten::convolution"]
    assert computed[0].place.module == f"{path}big"
    assert {span.phase for span in computed} == {"backward"}
    assert str(computed[0].place.own) == lines["BIG"]
    gradients = [span for span in found if span.operator == "aten::convolution_backward"]
    assert [span.place.module for span in gradients] == [f"{path}small", f"{path}big"]
    assert {
        (cost.phase, cost.place, cost.operator) for cost in costs.all if cost.place.node == AGAIN and cost.macs
    } <= {(span.phase, span.place, span.operator.removeprefix("aten::")) for span in found}


ITEM = Plant(
    "_local_scalar_dense",
    FORWARD + "    scale = x.abs().max().item()  # HERE\n    return self.conv(x) * (2 if scale > 0 else 1)",
)


@pytest.mark.parametrize("mode", MODES)
def test_what_runs_on_data_is_counted_in_a_pass_on_data(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module, x = built(ITEM, tmp_path)
    found = known(module, x, mode=mode, device="cpu", dtype="float32", autocast=None, roof=ROOF)
    assert found.missing == []
    assert ".item()" in found.on_data
    line = next(iter(marked(tmp_path, far=False)))
    assert line in found.on_data
    convolution = 2 * 30 * 8 * 8
    products = sum(cost.macs for cost in found.costs.all if "convolution" in cost.operator)
    assert products == convolution * (1 if mode == "infer" else 2)  # the input needs no gradient
    assert sum(cost.macs for cost in found.costs.all if cost.operator == "mul") == 480 * (1 if mode == "infer" else 2)
    forward = next(cost for cost in found.costs.all if cost.operator == "convolution" and cost.phase == "forward")
    # cuDNN's kernel adds the bias on its own
    assert forward.moved_bytes >= 4 * (480 + 480 + 64)
    for cost in found.costs.all:
        cost.ms = [1.0] * 3
    taken = Pass(mode, found.costs.all, ROOF, [9.0] * 3, [9.0] * 3, on_data=found.on_data, advice=advice(
        Pass(mode, found.costs.all, ROOF, [9.0] * 3, [9.0] * 3), found.memory))  # fmt: skip
    rows = table(Profile("", "", {mode: taken}), mode, "line", "own").rows
    assert [cell.text for row in rows for cell in row.cells if cell.text.endswith("*")]
    told = sentences(taken)
    assert [each for each in told if each.startswith(f"*: counted in a pass on numbers, because {line} reads")]
    assert [each for each in told if each.startswith(f"At {line}, Python waits for a value (_local_scalar_dense;")]


def test_float64_by_accident_is_named_with_half_of_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module, x = built(PLANTS["float64"], tmp_path)
    found = known(module, x, mode="infer", device="cpu", dtype="float32", autocast=None, roof=ROOF)
    for cost in found.costs.all:
        cost.ms = [3.0 if cost.operator == "mul" else 1.0] * 3
    told = advice(Pass("infer", found.costs.all, ROOF, [9.0] * 3, [9.0] * 3), found.memory)
    line = next(iter(marked(tmp_path, far=False)))
    (sentence,) = (each for each in told if "float64" in each)
    assert sentence.startswith(f"At {line}, mul compute in float64, though the pass does not: half of the bytes")
    assert "3.00 ms" in sentence
    assert "1.50 ms, are saved" in sentence
    other = known(module.double(), x.double(), mode="infer", device="cpu", dtype="float64", autocast=None, roof=ROOF)
    assert not [cost for cost in other.costs.all if cost.is_wide]


def test_many_small_operators_are_told_with_what_fusing_them_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    body = "    y = x\n    for at in range(40):\n        y = y + at  # HERE\n    return self.conv(y)"
    module, x = built(Plant("add", FORWARD + body), tmp_path)
    found = known(module, x, mode="infer", device="cpu", dtype="float32", autocast=None, roof=ROOF)
    for cost in found.costs.all:
        cost.ms = [0.06 if cost.operator == "add" else 0.1] * 3
    told = advice(Pass("infer", found.costs.all, ROOF, [0.2] * 3, [0.2] * 3), found.memory)
    (sentence,) = (each for each in told if "fused by torch.compile" in each)
    assert sentence.startswith("40 calls take little longer than it takes to start them, 0.0600 ms")
