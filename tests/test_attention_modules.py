"""Attention of Table 3 at its edges: scales that start at zero, vectors without a length, a table of positions.

Outputs, gradients, counts and refusals are compared in `test_field_modules.py`, as those of the other modules.
"""

import pytest
import torch
from reference_attention import REFERENCES
from test_field_modules import FULL, build, leaves_of
from torch import nn

from ctxbench import registry

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def test_learned_scales_start_at_the_identity() -> None:
    x = torch.randn(2, 16, 3, 5)
    assert torch.equal(registry.get("linear").build(16)(x), x)
    dual = registry.get("da").build(16)
    assert torch.equal(dual.get_submodule("position")(x), x)
    assert torch.equal(dual.get_submodule("channel")(x), x)


@pytest.mark.parametrize("zero_pixels", [slice(0, 1), slice(0, 3)])
def test_linear_attention_takes_nothing_from_zero_vectors(zero_pixels: slice) -> None:
    module = build("linear", 16, {}).eval()
    for name, parameter in module.named_parameters():
        if name in ("query.bias", "key.bias"):
            nn.init.zeros_(parameter)
    x = torch.randn(2, 16, 3, 5, dtype=torch.float64)
    x[0, :, zero_pixels] = 0.0
    expected = REFERENCES["linear"](leaves_of(module, x), x, False)
    x.requires_grad_()
    output = module(x)
    output.square().sum().backward()
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    for gradient in [x.grad, *(p.grad for p in module.parameters())]:
        assert gradient is not None
        assert gradient.isfinite().all()
        assert gradient.abs().max() < 1e4


def test_linear_attention_takes_only_the_direction_of_short_vectors() -> None:
    module = build("linear", 16, {}).float().eval()
    x = torch.randn(2, 16, 3, 5)
    expected = module(x)
    with torch.no_grad():
        for name in ("query", "key"):
            for parameter in module.get_submodule(name).parameters():
                parameter.mul_(1e-16)
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_attention_survives_opposite_queries_and_keys(dtype: torch.dtype) -> None:
    """With one channel a query can be opposite to every key: all weights 1 + q . k are zero."""
    module = build("linear", 2, {"reduction": 2}).to(dtype)
    with torch.no_grad():
        module.get_parameter("query.weight").zero_()
        module.get_parameter("key.weight").zero_()
        module.get_parameter("query.bias").fill_(-1.0)
        module.get_parameter("key.bias").fill_(1.0)
    x = torch.randn(1, 2, 20, 30, dtype=dtype, requires_grad=True)
    output = module(x)
    output.sum().backward()
    assert output.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("focus", [3, 8])
def test_focused_linear_attention_is_finite_for_zero_features(focus: int) -> None:
    """(1e-6)**8 squared is no float32 number: the power is taken of unit vectors."""
    module = build("focused_linear", 16, {"focus": focus}).float()
    with torch.no_grad():
        for name in ("query", "key_value"):
            module.get_parameter(f"{name}.bias").zero_()
    x = torch.zeros(1, 16, 4, 3, requires_grad=True)
    output = module(x)
    output.sum().backward()
    wide = {name: leaf.double() for name, leaf in leaves_of(module, x).items()}
    expected = REFERENCES["focused_linear"](wide, wide["input"], True, focus=focus)
    torch.testing.assert_close(output.double(), expected, rtol=1e-4, atol=1e-5)
    for gradient in [x.grad, *(p.grad for p in module.parameters())]:
        assert gradient is not None
        assert gradient.isfinite().all()


def test_a_position_table_refuses_another_resolution() -> None:
    module = registry.get("focused_linear").build(16, {"positions": 12})
    assert module(torch.randn(1, 16, 4, 3)).shape == (1, 16, 4, 3)
    with pytest.raises(ValueError, match=r"table of 12 positions; the input has 20 \(H 4 x W 5\)"):
        module(torch.randn(1, 16, 4, 5))
    assert registry.get("focused_linear").closed_form("params", FULL, {"positions": 128 * 128}) == 9_441_408
