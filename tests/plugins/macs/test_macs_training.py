"""MACs of a training step: closed forms, equality with the operators of a real step on the CPU, and bad modules."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from test_macs import self_attention
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention_by_name
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
from wrapped import Wrapped

import ctxbench
from ctxbench import registry
from ctxbench.meta.fused_attention import BATCH_OF_ONE
from ctxbench.meta.outputs import trained_input
from ctxbench.plugins.macs.counter import MacCount, MacSum, count_macs
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.macs.watch import UncountableError, Watch

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


class Case(NamedTuple):
    """A module or function, the shapes of its inputs, which all need a gradient, and its MACs in each direction."""

    call: nn.Module | Callable[..., Any]
    shapes: list[tuple[int, ...]]
    forward: int
    backward: int

    @property
    def module(self) -> nn.Module:
        return self.call if isinstance(self.call, nn.Module) else Wrapped(self.call)


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


ATTENTION = 2 * 3 * 5 * 7  # batch, heads, queries, keys
PRODUCTS = {
    "linear": Case(nn.Linear(4, 8), [(3, 4)], 96, 2 * 96),
    "linear 3d": Case(nn.Linear(4, 8), [(2, 3, 4)], 192, 2 * 192),
    "linear without bias": Case(nn.Linear(4, 8, bias=False), [(2, 3, 4)], 192, 2 * 192),
    "linear frozen": Case(frozen(nn.Linear(4, 8)), [(3, 4)], 96, 96),
    "conv1d": Case(nn.Conv1d(3, 5, 3), [(2, 3, 9)], 630, 2 * 630),
    "conv2d": Case(nn.Conv2d(4, 8, 3, padding=1), [(2, 4, 6, 5)], 2 * 8 * 30 * 36, 2 * 2 * 8 * 30 * 36),
    "conv2d of one image": Case(nn.Conv2d(4, 8, 1), [(4, 6, 5)], 960, 2 * 960),
    "conv2d strided": Case(nn.Conv2d(4, 8, 3, stride=2), [(1, 4, 9, 7)], 8 * 12 * 36, 2 * 8 * 12 * 36),
    "conv2d dilated": Case(nn.Conv2d(4, 8, 3, dilation=2), [(1, 4, 9, 7)], 8 * 15 * 36, 2 * 8 * 15 * 36),
    "conv2d in 2 groups": Case(nn.Conv2d(4, 8, 3, groups=2), [(1, 4, 6, 5)], 8 * 12 * 18, 2 * 8 * 12 * 18),
    "conv2d in 4 groups": Case(nn.Conv2d(8, 4, 3, groups=4), [(3, 8, 6, 5)], 3 * 4 * 12 * 18, 2 * 3 * 4 * 12 * 18),
    "conv2d depthwise": Case(nn.Conv2d(4, 4, 5, padding=2, groups=4), [(1, 4, 6, 5)], 3000, 2 * 3000),
    "conv2d frozen": Case(frozen(nn.Conv2d(4, 8, 3, groups=2)), [(1, 4, 6, 5)], 1728, 1728),
    "conv3d": Case(nn.Conv3d(2, 3, 2), [(1, 2, 3, 3, 3)], 384, 2 * 384),
    "conv transposed": Case(nn.ConvTranspose2d(4, 8, 3, stride=2), [(2, 4, 6, 5)], 17280, 2 * 17280),
    "conv transposed in groups": Case(
        nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), [(1, 4, 5, 5)], 4 * 25 * 12, 2 * 4 * 25 * 12
    ),
    "matmul of vectors": Case(torch.matmul, [(4,), (4,)], 4, 2 * 4),
    "matmul 2x1": Case(torch.matmul, [(3, 4), (4,)], 12, 2 * 12),
    "matmul 1x2": Case(torch.matmul, [(4,), (4, 5)], 20, 2 * 20),
    "matmul 2x2": Case(torch.matmul, [(3, 4), (4, 5)], 60, 2 * 60),
    "matmul 3x2": Case(torch.matmul, [(2, 3, 4), (4, 5)], 120, 2 * 120),
    "matmul 2x3": Case(torch.matmul, [(3, 4), (2, 4, 5)], 120, 2 * 120),
    "matmul 3x1": Case(torch.matmul, [(2, 3, 4), (4,)], 24, 2 * 24),
    "matmul broadcast": Case(torch.matmul, [(2, 1, 3, 4), (7, 4, 5)], 840, 2 * 840),
    "bmm": Case(torch.bmm, [(2, 3, 4), (2, 4, 5)], 120, 2 * 120),
    "addmm": Case(torch.addmm, [(3, 5), (3, 4), (4, 5)], 60, 2 * 60),
    "addmv": Case(torch.addmv, [(3,), (3, 4), (4,)], 12, 2 * 12),
    "baddbmm": Case(torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)], 120, 2 * 120),
    "einsum": Case(lambda x, y: torch.einsum("bij,bjk->bik", x, y), [(2, 3, 4), (2, 4, 5)], 120, 2 * 120),
    # the inverse is no product that has a rule; its gradient is two
    "inverse": Case(lambda x: torch.linalg.inv(x), [(2, 3, 3)], 0, 2 * 2 * 27),
    "attention": Case(F.scaled_dot_product_attention, [(2, 3, 5, 8), *[(2, 3, 7, 8)] * 2], ATTENTION * 16,
                      ATTENTION * 40),
    "attention, imported": Case(attention_by_name, [(2, 3, 5, 8), *[(2, 3, 7, 8)] * 2], ATTENTION * 16, ATTENTION * 40),
    "attention, causal": Case(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [(2, 3, 5, 8)],
                              150 * 16, 150 * 40),
    "attention, by keywords": Case(lambda q, k: F.scaled_dot_product_attention(key=k, value=k, query=q),
                                   [(2, 3, 5, 8), (2, 3, 7, 8)], ATTENTION * 16, ATTENTION * 40),
    "attention with a mask": Case(lambda q, k: F.scaled_dot_product_attention(q, k, k, torch.ones(5, 7)),
                                  [(2, 3, 5, 8), (2, 3, 7, 8)], ATTENTION * 16, ATTENTION * 40),
}  # fmt: skip

ELEMENTWISE = {
    "mul": Case(lambda x, y: x * y, [(2, 3), (2, 3)], 6, 2 * 6),
    "mul broadcast": Case(lambda x, y: x * y, [(2, 1), (3,)], 6, 2 * 6),
    "mul by a number": Case(lambda x: x * 0.5, [(2, 3)], 6, 6),
    # the gradient of x / y to y is -g * (x / y / y)
    "div": Case(lambda x, y: x / y, [(2, 3), (2, 3)], 0, 6),
    "batch norm": Case(nn.BatchNorm2d(4), [(2, 4, 3, 3)], 72, 2 * 72),
    "batch norm, frozen": Case(frozen(nn.BatchNorm2d(4)), [(2, 4, 3, 3)], 72, 72),
    "batch norm, not affine": Case(nn.BatchNorm2d(4, affine=False), [(2, 4, 3, 3)], 0, 0),
    "layer norm": Case(nn.LayerNorm(3), [(2, 4, 3)], 24, 2 * 24),
    "layer norm, not affine": Case(nn.LayerNorm(3, elementwise_affine=False), [(2, 4, 3)], 0, 0),
    "layer norm without bias": Case(nn.LayerNorm(3, bias=False), [(2, 4, 3)], 24, 2 * 24),
    "group norm": Case(nn.GroupNorm(2, 4), [(2, 4, 3, 3)], 72, 2 * 72),
    "average pool": Case(nn.AvgPool2d(3, 2, 1), [(1, 4, 8, 6)], 48, 48),
    "adaptive average pool": Case(nn.AdaptiveAvgPool2d(3), [(2, 4, 8, 6)], 72, 72),
    "leaky relu": Case(nn.LeakyReLU(), [(2, 3)], 6, 6),
    "bilinear": Case(nn.Upsample(scale_factor=2, mode="bilinear"), [(1, 2, 3, 3)], 288, 288),
    "grid sample": Case(
        lambda x, grid: F.grid_sample(x, grid, align_corners=False), [(1, 2, 3, 3), (1, 4, 5, 2)], 160, 2 * 160
    ),
    "grid sample, bicubic": Case(
        lambda x, grid: F.grid_sample(x, grid, "bicubic", "border", False), [(1, 2, 3, 3), (1, 4, 5, 2)], 640, 1280
    ),
    "dropout": Case(nn.Dropout(0.5), [(2, 3)], 0, 6),
    "softmax": Case(lambda x: x.softmax(-1), [(2, 3)], 0, 0),
    "log softmax": Case(lambda x: x.log_softmax(-1), [(2, 3)], 0, 0),
    "activations": Case(lambda x: F.silu(x.relu().sigmoid().tanh()), [(2, 3)], 0, 0),
    "sums": Case(lambda x, y: (x + y - 1).sum(-1), [(2, 3), (2, 3)], 0, 0),
    "max pool": Case(nn.MaxPool2d(2), [(1, 2, 4, 4)], 0, 0),
    "parts": Case(lambda x: torch.cat([x[:, 1:], F.pad(x, (1, 1)).flip(1)], 1), [(2, 3)], 0, 0),
    "gather": Case(lambda x: x.gather(1, torch.zeros(2, 2, dtype=torch.long)), [(2, 3)], 0, 0),
    "unfold": Case(nn.Unfold(2), [(1, 2, 4, 4)], 0, 0),
}
CASES = PRODUCTS | ELEMENTWISE


def real_step(module: nn.Module, *inputs: Tensor) -> tuple[MacCount, MacCount]:
    """Counts of a real step on the CPU: after the forward, and after the backward pass."""
    duplicate = copy.deepcopy(module).train()
    copies = [each.detach().requires_grad_(each.requires_grad) for each in inputs]
    counting = MacSum()
    with Watch(duplicate, counting.add) as watch:
        output = duplicate(*copies)
        forward, watch.in_backward = counting.count(), True
        output.sum().backward()
    return forward, counting.count()


def check_against_a_real_step(module: nn.Module, *inputs: Tensor) -> MacCount:
    """The count has the products and the backward pass of a real step.

    The forwards differ by what a composite costs as a whole and not in parts, as an einsum that is a sum.
    """
    forward, step = real_step(module, *inputs)
    counted = count_training_macs(module, *inputs)
    before = count_macs(module, *inputs, training=True)
    assert counted.macs_matmul == step.macs_matmul
    assert counted.macs - before.macs == step.macs - forward.macs
    assert before.macs_matmul == forward.macs_matmul
    return counted


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_operator(case: Case) -> None:
    module = case.module
    inputs = [torch.rand(shape, requires_grad=True) for shape in case.shapes]
    assert count_macs(module, *inputs, training=True).macs == case.forward
    count = check_against_a_real_step(module, *inputs)
    assert count.macs == case.forward + case.backward
    assert sum(count.by_operator.values()) == count.macs
    assert all(each.grad is None for each in (*inputs, *module.parameters()))


@pytest.mark.parametrize(
    ("module", "shape", "macs"),
    [
        (nn.Linear(4, 8), (3, 4), 96),
        (nn.Conv2d(4, 8, 3, groups=2), (1, 4, 6, 5), 1728),
        (nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (1, 4, 5, 5), 1200),
        (nn.BatchNorm2d(4), (2, 4, 3, 3), 72),
    ],
)
def test_an_input_without_gradient_costs_none(module: nn.Module, shape: tuple[int, ...], macs: int) -> None:
    assert check_against_a_real_step(module, torch.rand(shape)).macs == 2 * macs
    assert check_against_a_real_step(module, torch.rand(shape, requires_grad=True)).macs == 3 * macs


def test_torchs_own_counter_is_wrong_on_the_gradient_of_groups() -> None:
    def flops(module: nn.Module, x: Tensor) -> int:
        with FlopCounterMode(display=False) as counter:
            module(x).sum().backward()
        return int(counter.get_total_flops()) // 2

    x = torch.rand(1, 4, 6, 5, requires_grad=True)
    for groups in (1, 2, 4):
        conv, forward = nn.Conv2d(4, 8, 3, groups=groups), 8 * 12 * 9 * 4 // groups
        assert count_training_macs(conv, x).macs == 3 * forward
        assert flops(conv, x) == (1 + 1 + groups) * forward


@pytest.mark.parametrize(
    ("flash", "inputs"),
    [
        (torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, ()),
        (torch.ops.aten._scaled_dot_product_efficient_attention, (None, True)),
        (torch.ops.aten._scaled_dot_product_flash_attention, ()),
    ],
)
def test_the_fused_kernels_are_counted_by_their_names(flash: Any, inputs: tuple[Any, ...]) -> None:
    maps = [torch.empty(2, 3, size, 8, device="meta", requires_grad=True) for size in (5, 7, 7)]
    count = count_training_macs(Wrapped(lambda q, k, v: flash(q, k, v, *inputs)[0]), *maps)
    assert count.macs == count.macs_matmul == ATTENTION * (16 + 40)


def test_attention_counts_as_fused_if_some_devices_kernel_takes_it() -> None:
    """The CPU's takes neither values of another width nor a mask with a gradient; CUDA's does."""
    maps = [torch.rand(2, 3, *size, requires_grad=True) for size in ((5, 8), (7, 8), (7, 6))]
    mask = torch.rand(5, 7, requires_grad=True)
    for inputs in (maps, [*maps, mask]):
        count = count_training_macs(Wrapped(F.scaled_dot_product_attention), *inputs)
        assert count.macs == ATTENTION * (8 + 6 + 3 * 8 + 2 * 6)


@pytest.mark.parametrize(
    ("shapes", "forward"),
    [
        ([(1, 1, 3, 5, 8), (1, 1, 3, 7, 8), (1, 1, 3, 7, 8)], 2),
        ([(1, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)], 4),
        ([(1, 3, 5, 8), (1, 3, 7, 8), (2, 3, 7, 8)], 3),
    ],
)
def test_attention_that_no_fused_kernel_takes_costs_the_math_path(shapes: list[tuple[int, ...]], forward: int) -> None:
    inputs = [torch.rand(shape, requires_grad=True) for shape in shapes]
    count = check_against_a_real_step(Wrapped(F.scaled_dot_product_attention), *inputs)
    assert count.macs_matmul == 3 * forward * 3 * 5 * 7 * 8


def test_attention_of_three_dimensions_is_fused_since_pytorch_2_14() -> None:
    inputs = [torch.rand(shape, requires_grad=True) for shape in ((3, 5, 8), (3, 7, 8), (3, 7, 8))]
    count = check_against_a_real_step(Wrapped(F.scaled_dot_product_attention), *inputs)
    products = 7 if BATCH_OF_ONE else 6
    assert count.macs_matmul == products * 3 * 5 * 7 * 8


def test_attention_whose_channels_are_apart_is_not_fused() -> None:
    inputs = [torch.rand(2, 3, 8, size, requires_grad=True) for size in (5, 7, 7)]
    apart = Wrapped(lambda *maps: F.scaled_dot_product_attention(*(each.transpose(2, 3) for each in maps)))
    assert check_against_a_real_step(apart, *inputs).macs_matmul == 6 * ATTENTION * 8
    dense = Wrapped(lambda *maps: F.scaled_dot_product_attention(*(each.transpose(2, 3).contiguous() for each in maps)))
    assert check_against_a_real_step(dense, *inputs).macs_matmul == 7 * ATTENTION * 8
    with sdpa_kernel(SDPBackend.MATH):
        assert check_against_a_real_step(dense, *inputs).macs_matmul == 6 * ATTENTION * 8


@pytest.mark.parametrize(("need_weights", "backward"), [(False, 5), (True, 4)])
def test_multihead_attention(need_weights: bool, backward: int) -> None:
    count = check_against_a_real_step(self_attention(need_weights), torch.rand(2, 5, 8))
    projections = 10 * (2 * 3 + 3 * 1) * 8**2  # three from the input, which needs no gradient; one of their result
    assert count.macs_matmul == projections + (2 + backward) * 2 * 5 * 5 * 8


def test_what_a_checkpoint_computes_again_counts_again() -> None:
    """Of two convolutions with ReLUs, behind a first one."""
    x, first = torch.rand(1, 4, 5, 5), nn.Conv2d(4, 4, 1)
    layers = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU())
    recomputed = Wrapped(lambda x, layers: checkpoint(layers, x, use_reentrant=False), layers)
    plain, again = (check_against_a_real_step(nn.Sequential(first, each), x) for each in (layers, recomputed))
    assert plain.macs == (2 + 3 + 3) * 400
    assert again.macs == plain.macs + 2 * 400


def test_what_runs_without_gradients_has_no_backward() -> None:
    def forward(x: Tensor, first: nn.Module, second: nn.Module) -> Any:
        with torch.no_grad():
            x = first(x)
        return second(x)

    module = Wrapped(forward, nn.Linear(4, 4), nn.Linear(4, 4))
    assert check_against_a_real_step(module, torch.rand(3, 4)).macs == 48 + 2 * 48


SHAPES = [(1, 512, 128, 128), (2, 64, 12, 10), (3, 32, 9, 11)]


# Of a scan's backward pass a convention is counted (tests/test_scan.py), of attention with a learned bias that of fused
# kernels, which the CPU has none of.
BY_CONVENTION = ("bi_wkv", "ss2d", "vim", "ssd", "swin", "grid", "dat")


@pytest.mark.parametrize("name", [each for each in registry.names() if each not in BY_CONVENTION])
def test_the_registry_counts_what_a_real_step_runs(name: str) -> None:
    torch.manual_seed(0)
    module = registry.get(name).build(64)
    check_against_a_real_step(module, trained_input(module, torch.rand(2, 64, 12, 10)))


def counted(name: str, shape: tuple[int, ...], **hparams: Any) -> int:
    with torch.device("meta"):
        return count_training_macs(registry.get(name).build(shape[1], hparams), torch.empty(shape)).macs


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("d", [None, 24])
def test_self_attention(shape: tuple[int, int, int, int], d: int | None) -> None:
    batch, channels, height, width = shape
    n, inner = height * width, d or channels
    projections = 3 * 2 + 3  # the three from the input cost their weight's gradient alone
    assert counted("sa", shape, d=d) == projections * batch * n * channels * inner + 6 * batch * n**2 * inner


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["swin", "grid"])
def test_fused_attention_in_windows(name: str, shape: tuple[int, int, int, int]) -> None:
    batch, channels, height, width = shape
    positions = batch * (-(-height // 7) * 7) * (-(-width // 7) * 7)
    assert counted(name, shape) == 9 * positions * channels**2 + 7 * positions * 49 * channels


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("name", "hparams"), [("mhsa", {}), ("sa", {"fused": True})])
def test_fused_attention_computes_the_affinity_again(
    name: str, hparams: dict[str, Any], shape: tuple[int, int, int, int]
) -> None:
    batch, channels, height, width = shape
    n = height * width
    assert counted(name, shape, **hparams) == (3 * 2 + 3) * batch * n * channels**2 + 7 * batch * n**2 * channels


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_linear_attention(shape: tuple[int, int, int, int]) -> None:
    batch, channels, height, width = shape
    pixels, narrow = batch * height * width, channels // 8
    forward = registry.get("linear").closed_form("macs", shape)
    assert forward is not None
    projections = channels**2 + 2 * channels * narrow
    products = 4 * channels * narrow + 2 * narrow  # descriptors, context; weights
    scaling = 4 * channels  # by the inverse weights and by the scale, each to both factors
    units = 2 * 3 * narrow  # of query and key: scaling to both factors, x * (g / |x|)
    inverses = 3 * 2  # g * (r * r): two lengths and the weights
    assert counted("linear", shape) == forward + pixels * (projections + products + scaling + units + inverses)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("steps", [1, 6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_one_step_gradient_reaches_one_update(shape: tuple[int, int, int, int], steps: int, heads: int) -> None:
    batch, channels, height, width = shape
    pixels, rank = batch * height * width, 16
    hparams = {"rank": rank, "steps": steps, "heads": heads}
    forward = registry.get("ham_nmf").closed_form("macs", shape, hparams)
    assert forward is not None
    bread = 3 * channels**2 + 2 * channels  # upper to both, lower to its weight; batch norm
    ham = 2 * channels * rank + heads * rank  # x^T M to x, M Z^T to Z; Z * (x^T M) to the second factor
    assert counted("ham_nmf", shape, **hparams) == forward + pixels * (bread + ham)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_back_propagation_through_time_pays_for_each_step(shape: tuple[int, int, int, int]) -> None:
    batch, channels, height, width = shape
    pixels, rank = batch * height * width, 16
    costs = [counted("ham_nmf", shape, rank=rank, steps=steps, gradient="bptt") for steps in (3, 4, 5)]
    rows = batch * channels + pixels
    products = 2 * pixels * channels * rank + 2 * rows * rank**2
    assert costs[1] - costs[0] == costs[2] - costs[1] == 3 * products + (1 + 3) * rows * rank


def test_products_without_a_rule_are_named() -> None:
    def forward(x: Tensor) -> Any:
        return torch.linalg.solve(x, x) + torch.fft.rfft2(x).real.sum()

    count = count_training_macs(Wrapped(forward), torch.rand(4, 4, requires_grad=True))
    assert count.uncounted.keys() == {
        "aten::_linalg_solve_ex", "aten::linalg_lu_solve", "aten::_fft_r2c", "aten::_fft_c2c"
    }  # fmt: skip


def test_the_module_is_left_as_it_was() -> None:
    module, x = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Dropout()).eval(), torch.rand(1, 4, 3, 2)
    before, generator = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    attention = F.scaled_dot_product_attention
    with torch.no_grad():
        assert count_training_macs(module, x).macs == 24 * (2 * 4 + 3) + 24
    assert not module.training
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(torch.get_rng_state(), generator)
    assert F.scaled_dot_product_attention is attention
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


class Fails(nn.Module):
    """Runs in eval mode only."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise ValueError("no training\nwith this")
        return x


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Wrapped(lambda x: x * 2), "the output of Wrapped depends on nothing that has a gradient"),
        (Wrapped(lambda x: (x * 2, None)), "the output of Wrapped depends on nothing that has a gradient"),
        (Fails(), "a training step of Fails fails on the meta device: ValueError: no training"),
        (
            Wrapped(lambda x: x * x.sum().item()),
            r"a training step of Wrapped fails on the meta device: RuntimeError: Tensor.item\(\) cannot be called on "
            "meta tensors",
        ),
        (
            Wrapped(lambda x: x @ x.detach().requires_grad_() if x.requires_grad or torch.is_inference(x) else x),
            "the output of Wrapped depends on nothing",
        ),
        (self_attention(False).requires_grad_(False), "the output of Wrapped depends on nothing that has a gradient"),
    ],
)
def test_what_has_no_training_step_is_refused(module: nn.Module, sentence: str) -> None:
    with pytest.raises(UncountableError, match=f"^{sentence}"):
        count_training_macs(module, torch.rand(2, 8, 8))


def test_a_forward_that_differs_with_gradients_costs_what_it_runs_with_them() -> None:
    twice = Wrapped(lambda x, layer: layer(layer(x)) if torch.is_grad_enabled() else layer(x), nn.Linear(4, 4))
    # two products of [3, 4] and [4, 4]; backward two for the weight, and one for the input of the second
    assert count_training_macs(twice, torch.rand(3, 4)).macs == (2 + 2 + 1) * 48


def test_a_run_has_the_macs_of_a_step_or_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from torch import nn\n\n\nclass Fails(nn.Module):\n"
        "    def __init__(self, channels):\n        super().__init__()\n"
        "    def forward(self, x):\n        if self.training:\n            raise ValueError('no training')\n"
        "        return x * 2\n"
    )
    modules, shape = ["ham_nmf", f"{path}:Fails"], (1, 64, 12, 10)
    frame = ctxbench.run(
        "quick", modules=modules, shape=shape, static=True, in_process=True, out=tmp_path / "run"
    ).frame
    assert frame["status"].tolist() == ["ok", "ok"]
    assert frame["macs_train"].fillna(0).tolist() == [counted("ham_nmf", shape), 0]
    assert json.loads(frame["macs_train_uncounted"][0]) == {}
    assert frame["macs"][1] == 64 * 120
    assert "no MACs of a training step: a training step of Fails fails on the meta device: ValueError: no training" in [
        *map(str, frame["notes"][1])
    ]
