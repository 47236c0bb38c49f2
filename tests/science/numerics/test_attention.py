"""The attention matrices against the modules' own outputs; entropy, rank and error by hand; the claims of FLatten."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from judge import verdicts
from test_numeric_metrics import computed_by
from torch import Tensor

import ctxbench
from ctxbench.model.conditions import Shape
from ctxbench.modules.focused_linear import FocusedLinearAttention, _focus
from ctxbench.modules.linear import LinearAttention
from ctxbench.modules.sa import SelfAttention
from ctxbench_science.numerics import attention

SMALL: Shape = (2, 16, 5, 6)


def computed(module: str, shape: Shape = SMALL, **hparams: Any) -> dict[str, Any]:
    return computed_by(attention.compute, module, shape, **hparams)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("made", [lambda: SelfAttention(16, d=8), lambda: LinearAttention(16, reduction=4)])
def test_the_matrix_gives_the_output(made: Callable[[], Any]) -> None:
    model, x = made().double(), draw(*SMALL)
    if isinstance(model, LinearAttention):
        torch.nn.init.ones_(model.scale)
    weights, _ = model.attention(x)
    context = (model.value(x).flatten(2) @ weights[:, 0].transpose(1, 2)).unflatten(2, (5, 6))
    torch.testing.assert_close(x + (model.output(context) if hasattr(model, "output") else context), model(x))


def test_the_matrices_of_focused_linear_attention_give_its_output() -> None:
    model, x = FocusedLinearAttention(16, heads=2).double(), draw(*SMALL)
    weights, logits = model.attention(x)
    assert weights.shape == logits.shape == (2, 2, 30, 30)
    value = model._split(model.key_value(x.flatten(2).transpose(1, 2)).chunk(2, dim=2)[1])  # [B, heads, n, c]
    assert model.detail.bias is not None
    local = torch.einsum("cij,bhjc->bhic", model.convolution(5, 6), value) + model.detail.bias
    context = (weights @ value + local).transpose(1, 2).flatten(2)
    torch.testing.assert_close(model.output(context).transpose(1, 2).unflatten(2, (5, 6)), model(x))


def test_entropy_and_rank_worked_by_hand() -> None:
    assert attention.entropy(torch.full((3, 4, 4), 0.25)) == pytest.approx(1)
    assert attention.entropy(torch.eye(4)) == 0
    assert attention.entropy(torch.tensor([[0.5, 0.5, 0, 0]] * 4)) == pytest.approx(0.5)
    assert attention.rank(torch.stack([torch.eye(4), torch.ones(4, 4)])) == 2.5


def test_linear_attention_is_softmax_to_first_order() -> None:
    """With arguments half as large, what is left out is a quarter."""
    logits = 0.02 * draw(1, 1, 20, 20)

    def error(scale: float) -> float:
        linear = 1 + scale * logits
        difference = linear / linear.sum(3, keepdim=True) - torch.softmax(scale * logits, dim=3)
        return float(difference.norm())

    assert error(1) / error(0.5) == pytest.approx(4, rel=0.02)


def test_softmax_has_no_error_against_itself_and_linear_attentions_have_the_rank_of_their_width() -> None:
    found = computed("sa")
    assert found["attention_error"] == 0
    assert found["attention_entropy"] == found["attention_entropy_softmax"]
    assert found["convolution_reason"] == "the module has no convolution besides its attention"
    assert computed("linear", reduction=4)["attention_rank"] == 5
    focused = computed("focused_linear", heads=2)
    assert (focused["attention_rank"], focused["attention_rank_convolution"]) == (8, 30)


@pytest.mark.parametrize("module", ["se", "ham_cd", "gc"])
def test_a_module_without_a_matrix_says_so(module: str) -> None:
    hparams = {"rank": 4} if module == "ham_cd" else {}
    found = computed(module, (1, 64, 5, 6), **hparams)
    assert found == dict.fromkeys(("attention_reason", "convolution_reason"), "the module gives no attention matrix")


def test_an_input_that_is_too_large_is_a_reason() -> None:
    assert computed("sa", (1, 16, 64, 64))["attention_reason"] == "the input has more than 1,024 positions"


def cosines(x: Tensor, y: Tensor, power: int) -> Tensor:
    scale = torch.ones((), dtype=x.dtype)
    return torch.cosine_similarity(_focus(x, scale, power), _focus(y, scale, power), dim=1)


def test_the_focus_shrinks_angles_in_a_group_and_widens_those_between_groups() -> None:
    """Proposition 1 of Han et al.: there is a p for each pair; here one for 500 pairs with clear largest elements."""
    x, y = (draw(1000, 6).abs().reshape(2, 500, 6)).unbind(0)
    x[torch.arange(500), torch.arange(500) % 6] = 2 * x.max(1).values
    y[torch.arange(500), torch.arange(500) % 6] = 2 * y.max(1).values
    other = y.roll(1, dims=1)
    before, after = cosines(x, y, 1), cosines(x, y, 32)
    assert (after > before).all()
    assert after.min() > 0.999
    before, after = cosines(x, other, 1), cosines(x, other, 32)
    assert (after < before).all()
    assert after.max() < 0.001
    lengths = _focus(x, torch.ones((), dtype=x.dtype), 32).norm(dim=1)
    torch.testing.assert_close(lengths, x.norm(dim=1), rtol=1e-5, atol=0)


@pytest.mark.slow
def test_the_suite_runs_small_and_its_claims_are_decided(tmp_path: Path) -> None:
    run = ctxbench.run(
        "attention_approximation", shape=[(1, 16, 5, 6)], metrics=["macs", "attention"], out=tmp_path / "run",
        in_process=True,
    )  # fmt: skip
    assert run.frame["status"].eq("ok").all(), run.frame["message"].tolist()
    found = verdicts("attention_approximation", run.folder.frame())
    assert found[1:3] == ["supported"] * 2
    assert "undecided" not in found
    assert not math.isnan(run.frame["attention_entropy"].astype(float).max())
