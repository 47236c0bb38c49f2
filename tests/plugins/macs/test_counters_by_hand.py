"""Figures of other counters, computed by hand: three packages on eight modules, and each state."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from wrapped import Wrapped

from ctxbench.plugins.macs.tools import not_run, readings, state_words
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import reading
from ctxbench.plugins.macs.tools.states import foldable, folded
from ctxbench.plugins.macs.tools.table import as_tools

B, C, SIDE = 2, 8, 8
N = SIDE * SIDE  # positions
SHAPE = (B, C, SIDE, SIDE)


def of_tokens(function: Callable[..., Tensor], *layers: nn.Module) -> nn.Module:
    """A function of the map's tokens [B, N, C], and of its layers."""
    return Wrapped(lambda x, *parts: function(x.flatten(2).transpose(1, 2).contiguous(), *parts), *layers)


def conv_and_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(C, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())


def gate() -> nn.Module:
    layers = nn.AdaptiveAvgPool2d(1), nn.Conv2d(C, 2, 1), nn.ReLU(), nn.Conv2d(2, C, 1), nn.Sigmoid()
    return Wrapped(lambda x, *parts: x * nn.Sequential(*parts)(x), *layers)


CONV, IN, OUT = C * 3 * 3, C * N, 16 * N  # a filter's weights; elements of one image
# thop 0.1.1 counts a batch, norms with weights four an element, and no parameters of a module that is one layer.
# ptflops 0.7 counts one image with biases, norms with weights two, a bias of a linear layer once, ReLU and pooling one.
# fvcore counts a batch, batch norm two, layer norm five, pooling one, a transposed convolution at its input, and `@`.
BY_HAND: dict[str, tuple[Callable[[], nn.Module], tuple[int, int], tuple[int, int], tuple[int, int]]] = {
    "convolution": (
        lambda: nn.Conv2d(C, 16, 3, padding=1),
        (B * OUT * CONV, 0),
        (OUT * CONV + OUT, 16 * CONV + 16),
        (B * OUT * CONV, 16 * CONV + 16),
    ),
    "convolution, norm, ReLU": (
        conv_and_norm,
        (B * OUT * (CONV + 4), 16 * CONV + 32),
        (OUT * (CONV + 2 + 1), 16 * CONV + 32),
        (B * OUT * (CONV + 2), 16 * CONV + 32),
    ),
    "depthwise convolution": (
        lambda: nn.Conv2d(C, C, 3, padding=1, groups=C, bias=False),
        (B * IN * 9, 0),
        (IN * 9, 9 * C),
        (B * IN * 9, 9 * C),
    ),
    "transposed convolution": (
        lambda: nn.ConvTranspose2d(C, 4, 2, stride=2, bias=False),
        (B * 4 * (4 * N) * C * 4, 0),
        (C * 4 * 4 * (4 * N), C * 4 * 4),
        (B * C * 4 * 4 * N, C * 4 * 4),
    ),
    "linear": (
        lambda: of_tokens(lambda x, linear: linear(x), nn.Linear(C, 24)),
        (B * N * C * 24, 24 * C + 24),
        (N * C * 24 + 24, 24 * C + 24),
        (B * N * C * 24, 24 * C + 24),
    ),
    "layer norm": (
        lambda: of_tokens(lambda x, norm: norm(x), nn.LayerNorm(C)),
        (4 * B * IN, 2 * C),
        (IN, 2 * C),
        (5 * B * IN, 2 * C),
    ),
    "gate": (
        gate,
        (B * C * (N + 1) + B * 4 * C, 4 * C + 2 + C),
        (IN + 4 * C + 2 + C + 2, 4 * C + 2 + C),
        (B * IN + B * 4 * C, 4 * C + 2 + C),
    ),
    "product": (lambda: of_tokens(lambda x: x @ x.transpose(1, 2)), (0, 0), (0, 0), (B * N * N * C, 0)),
}


def found(module: nn.Module, *names: str, shape: tuple[int, ...] = SHAPE) -> list[tuple[int, int | None]]:
    """Figures and params of a module by these readings."""
    calls = Calls(module, shape)
    return [(reading(name).count(calls), reading(name).params(calls)) for name in names]


@pytest.mark.parametrize("case", BY_HAND)
def test_three_packages_count_as_their_rules_say(case: str) -> None:
    build, *expected = BY_HAND[case]
    assert found(build(), "thop@0.1.1", "ptflops@0.7", "fvcore@0.1.5") == expected


def test_a_norm_that_is_folded_costs_nothing_and_leaves_its_bias() -> None:
    names = ("thop@0.1.1", "fvcore@0.1.5", "torchprofile@0.1.0", "deepspeed@0.19.8", "torchinfo@1.8.0")
    params = 16 * CONV + 16
    assert found(conv_and_norm(), *(f"{name}+folded-norms" for name in names)) == [
        (B * OUT * CONV, params),
        (B * OUT * CONV, params),
        (B * OUT * CONV, None),
        (B * OUT * (2 * CONV + 1 + 1), params),  # a bias and a ReLU
        (B * N * params, params),
    ]


class Residual(nn.Module):
    """Convolutions whose norm can be folded, and ones whose cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.read, self.changed, self.twice = (nn.Conv2d(C, C, 1) for _ in range(4))
        self.norm, self.of_sum, self.of_read, self.of_changed, self.of_twice = (nn.BatchNorm2d(C) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.of_sum(x + self.norm(self.conv(x)))
        z = self.read(y)
        y = self.of_read(z) + z
        y = self.of_changed(functional.relu_(self.changed(y)))
        out: Tensor = self.of_twice(self.twice(self.of_twice(self.twice(y))))
        return out


def test_a_norm_is_folded_where_it_alone_reads_a_convolution_and_the_output_stays() -> None:
    torch.manual_seed(0)
    module = Residual().double()
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            for value in (each.running_mean, each.running_var, each.weight, each.bias):
                assert value is not None
                value.data.uniform_(0.5, 2)
    pairs = foldable(Calls(module, SHAPE))
    assert pairs == [("conv", "norm")]
    x = torch.rand(SHAPE, dtype=torch.float64)
    assert torch.allclose(folded(module.eval(), pairs)(x), module(x), rtol=1e-12)


@pytest.mark.parametrize(("name", "times"), [("flop-counter-mode@2.13.0", 2 * B), ("ptflops-aten@0.7.5", 1)])
def test_fused_attention_that_runs_as_products_counts(name: str, times: int) -> None:
    module = of_tokens(lambda x: functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]))
    both = found(module, name, f"{name}+unfused-attention")
    assert [each for each, _ in both] == [0, 2 * times * N * N * C]


class Mamba(nn.Module):
    """A layer, and products with the weights of others, as mamba_ssm's without its kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj, self.conv1d, self.out_proj = nn.Linear(C, 16), nn.Conv1d(16, 16, 1), nn.Linear(16, C)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1d(self.in_proj.weight @ x.flatten(2))
        out: Tensor = self.out_proj(y.transpose(1, 2))
        return out


def test_layers_of_mamba_that_are_not_called_count_as_functions_or_not_at_all() -> None:
    module = nn.Sequential(Mamba(), nn.Linear(C, C))
    behind, layers = B * N * C * C, B * N * (16 * 16 + 16 * C)
    own = C * C + C
    assert found(module, "thop@0.1.1", "thop@0.1.1+fused-mamba") == [
        (behind + layers, own + 16 * 16 + 16 + 16 * C + C),
        (behind, own),
    ]
    names = ("ultralytics-thop@2.2.3", "ultralytics-thop@2.2.3+fused-mamba")
    products = B * N * 16 * C
    assert [each for each, _ in found(module, *names)] == [behind + layers + products, behind + 2 * products]


def test_a_line_through_two_small_images_misses_what_is_no_line() -> None:
    straight = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    conv, name = 8 * 4 * 9, "ultralytics-thop@2.1.6+stride-32"
    of_96 = 96 * 96 * conv + 8 * 96 * 96 + 8 + 40
    assert found(straight, name, "ultralytics-thop@2.1.6", shape=(1, 4, 96, 96)) == [(of_96, 8 * 36 + 8 + 45)] * 2
    # Windows of 6 from 32, 64 and 96 elements, which overlap, have 36, 68 and 96.
    small, twice = 36 * 36 + 36, 36 * 68 + 36
    pooled = found(nn.AdaptiveAvgPool2d(6), name, "ultralytics-thop@2.1.6", shape=(1, 4, 96, 96))
    assert pooled == [(4 * (small + 8 * (twice - small)), 0), (4 * (96 * 96 + 36), 0)]
    for side in (32, 80):  # no larger, and no multiple
        here = found(nn.AdaptiveAvgPool2d(6), name, "ultralytics-thop@2.1.6", shape=(1, 4, side, side))
        assert here[0] == here[1]


def test_a_version_that_does_not_run_has_its_line_and_a_state_where_it_prints_another_number() -> None:
    names = [*readings(), *not_run()]
    assert {name.partition("+")[2] for name in readings()} == {"", *state_words()}
    table, *about = as_tools(conv_and_norm(), SHAPE, names)
    lines = {row[0]: [*row[1:]] for row in table.rows}
    assert {name: lines[name] for name in not_run()} == {
        name: ["", "not run", "", "", why] for name, why in not_run().items()
    }
    folded_norms = [name for name in names if name.endswith("+folded-norms")]
    assert [name for name in lines if "+" in name] == folded_norms
    told = [each.text for each in about]
    assert f"+folded-norms: {state_words()['folded-norms']}." in told
    assert told[-1] == "A state that has no line prints what its version prints without it."
    (line,) = as_tools(conv_and_norm(), SHAPE, ["fvcore@0.1.5+no-grad"])[0].rows
    assert line[:3] == ("fvcore@0.1.5+no-grad", f"{16 * CONV + 32:,}", f"{B * OUT * (CONV + 2):,}")
