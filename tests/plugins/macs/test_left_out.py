"""Work that no rule counts: named wherever its count stands, with its cost where a convention has one; never ranked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from wrapped import Wrapped

import ctxbench
from ctxbench.base.notes import LACKS
from ctxbench.base.number import Number, order, reason_not_comparable
from ctxbench.plugins.macs.counter import MacCount, count_macs
from ctxbench.plugins.macs.training import count_training_macs

FILTER = '''
import torch
from torch import nn


class Filter(nn.Module):
    """A product with a filter in the frequency domain."""

    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 8, 5, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.irfft2(torch.fft.rfft2(x) * self.gain, s=x.shape[-2:])
'''
FFTS = "2 FFTs (61,440 MACs by 5/2 N log2 N, half of it for real numbers)"
# By hand: of 64 real maps of 8 x 8, 5/4 64 log2 64 each, there and back.
assert 2 * 64 * 5 * 64 * 6 // 4 == 61_440


def count(function: Callable[..., Any], *shapes: tuple[int, ...]) -> MacCount:
    return count_macs(Wrapped(function), *(torch.empty(shape, device="meta") for shape in shapes))


@pytest.mark.parametrize(
    ("function", "shapes", "cost", "words"),
    [
        (torch.fft.fft, [(2, 16)], 5 * 2 * 16 * 4 // 4, "1 FFT"),
        (lambda x: torch.fft.fft2(torch.complex(x, x)), [(3, 4, 8)], 5 * 3 * 32 * 5 // 2, "1 FFT"),
        (torch.linalg.inv, [(2, 6, 6)], 2 * 6**3, "1 matrix inverse"),
        (torch.linalg.solve, [(2, 6, 6), (2, 6, 3)], 2 * (6**3 // 3 + 6 * 6 * 3), "1 linear solve"),
        (torch.linalg.cholesky, [(2, 6, 6)], 2 * 6**3 // 6, "1 matrix factorization"),
        (torch.linalg.det, [(2, 6, 6)], 2 * 6**3 // 3, "1 matrix factorization"),
        (torch.linalg.qr, [(2, 6, 3)], 2 * (2 * 6 * 9 - 2 * 27 // 3), "1 matrix factorization"),
        (torch.linalg.svdvals, [(2, 6, 3)], None, "1 call of _linalg_svd"),
        (torch.linalg.matrix_exp, [(2, 6, 6)], None, "1 call of linalg_matrix_exp"),
    ],
)
def test_an_operator_without_a_rule_is_named_with_its_cost_by_another_convention(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], cost: int | None, words: str
) -> None:
    found = count(function, *shapes)
    assert found.macs == 0
    assert sum(found.estimates.values()) == (cost or 0)
    assert found.left_out.startswith(words if cost is None else f"{words} ({cost:,} MACs by ")
    assert found.lacks == found.left_out


def test_an_operator_of_an_extension_is_named() -> None:
    with torch.library._scoped_library("mine", "FRAGMENT") as library:
        library.define("gram(Tensor x) -> Tensor")
        library.impl("gram", lambda x: x @ x.mT, "CPU")
        library.impl("gram", lambda x: x.new_empty(*x.shape[:-1], x.shape[-2]), "Meta")
        assert count(torch.ops.mine.gram, (2, 3, 4)).lacks == "1 call of mine::gram"


def test_complex_products_count_once_and_the_real_ones_are_named() -> None:
    def forward(x: Tensor) -> Tensor:
        z = torch.complex(x, x)
        return z * z + z * x

    found = count(forward, (2, 3))
    assert found.macs == 12
    assert found.lacks == "24 further real products of complex ones, each of which counts once"
    assert count(lambda x: torch.complex(x, x) @ torch.complex(x, x), (4, 4)).estimates == {"complex products": 3 * 64}


def test_what_three_digits_do_not_show_is_no_bar() -> None:
    found = count(lambda x, y: (torch.linalg.inv(x), y @ y), (4, 4), (64, 64))
    assert (found.macs, found.left_out, found.lacks) == (64**3, "1 matrix inverse (64 MACs by n^3)", "")
    assert count(lambda x, y: (torch.linalg.inv(x), y @ y), (16, 16), (64, 64)).lacks


ELEMENTWISE = [
    each
    for name in nn.modules.activation.__all__
    if not name.endswith(("Attention", "Threshold", "max", "min")) and (each := getattr(nn, name))
]


@pytest.mark.parametrize("activation", ELEMENTWISE, ids=lambda each: each.__name__)
def test_each_activation_has_a_rule_forward_and_backward(activation: type[nn.Module]) -> None:
    x = torch.empty(2, 6, 4, 4, device="meta", requires_grad=True)
    assert count_training_macs(activation(), x).uncounted == {}


LOSSES = [functional.mse_loss, functional.l1_loss, functional.huber_loss, functional.binary_cross_entropy_with_logits]


@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_has_a_rule(loss: Callable[..., Tensor]) -> None:
    assert count(loss, (2, 3), (2, 3)).uncounted == {}


@pytest.mark.plugin("compare")
def test_no_verdict_rests_on_a_number_that_lacks_work() -> None:
    from ctxbench.plugins.compare.ranking import Standing, front, ranked, sentences

    part, whole, same = Number(10, lacks="2 FFTs"), Number(1000), Number(20, lacks="2 FFTs")
    assert (part.reason_not_comparable, order(part, whole)) == ("it does not include 2 FFTs", 0)
    assert reason_not_comparable(whole, part) == "it does not include 2 FFTs"
    assert (reason_not_comparable(part, same), order(part, same)) == ("", -1)
    mine = Standing("mine", True, {"params": Number(5), "macs": part})
    rows = [mine, Standing("other", False, {"params": Number(10), "macs": whole})]
    assert [row.label for row in ranked(rows, "macs")] == ["other", "mine"]
    assert [row.label for row in front(rows, ["params", "macs"])] == ["mine", "other"]
    assert sentences(rows) == [
        "On the Pareto front: mine and other.",
        "mine: MACs is not compared: it does not include 2 FFTs.",
        "mine: 2.00x fewer parameters than other.",
    ]


@pytest.mark.processes
@pytest.mark.plugin("compare")
@pytest.mark.plugin("show")
def test_a_filter_by_fft_dominates_nothing_in_macs(shared_server: None, tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(FILTER)
    asked: dict[str, Any] = {"shape": (1, 64, 8, 8), "metrics": ["params", "macs"], "rank_by": "params"}
    found = ctxbench.compare(f"{path}:Filter", ["linear"], out=tmp_path / "run", **asked)
    printed = "\n".join(map(str, found.parts))
    assert "dominate" not in printed
    real = "7,680 further real products of complex ones, each of which counts once"
    assert f"Filter: MACs is not compared: it does not include {FFTS} and {real}." in printed
    assert f"It does not include {FFTS} and {real}." in printed
    row = next(row for row in found.value.folder.rows() if row["module"] == "Filter")
    assert (row["macs"], json.loads(row["macs_uncounted"]).keys()) == (
        2560, {"aten::_fft_r2c", "aten::_fft_c2r", "complex products"}
    )  # fmt: skip
    assert [note.code for note in row["notes"] if note.about == "macs"] == [LACKS]
    assert "2,560 of the parameters are complex numbers, which count once and hold two real ones" in printed
    told = "\n".join(map(str, ctxbench.show(f"{path}:Filter", (1, 64, 8, 8)).parts))
    assert f"macs does not include {FFTS}" in told


@pytest.mark.processes
@pytest.mark.plugin("compare")
def test_a_comparison_says_why_a_row_has_no_count(shared_server: None, tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(FILTER.replace("return torch.fft", "x.mean().item()\n        return torch.fft"))
    asked: dict[str, Any] = {"shape": (1, 64, 8, 8), "metrics": ["params", "macs", "memory"], "rank_by": "params"}
    found = ctxbench.compare(f"{path}:Filter", ["linear"], out=tmp_path / "run", **asked)
    printed = "\n".join(map(str, found.parts))
    assert "Not compared, since not every row has it: MACs and training memory." in printed
    assert "Filter cannot be counted without data, because block.py:14 reads the values of a tensor" in printed
    assert "no memory prediction (train): block.py:14 reads a tensor's values" in printed
