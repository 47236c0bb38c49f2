"""Parts that PyTorch runs otherwise on meta: flex_attention, compiled and parallel parts, checkpoints."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from wrapped import Wrapped

from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.macs.watch import UncountableError

pytestmark = [
    pytest.mark.slow,  # flex_attention and the compiler take seconds to import
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad"),
    pytest.mark.filterwarnings("ignore:.*torch.jit"),
]
B, HEADS, N, D = 4, 4, 64, 16
C = HEADS * D
PRODUCTS = 2 * B * HEADS * N * N * D  # of the scores and the context
PROJECTIONS = 3 * B * N * C * C


class Flex(nn.Module):
    """pytorch 134385: attention with a change of each score, and perhaps a mask."""

    def __init__(self, causal: str = "") -> None:
        from torch.nn.attention.flex_attention import create_block_mask

        super().__init__()
        self.qkv, self.causal = nn.Conv2d(C, 3 * C, 1), causal
        self.mask = create_block_mask(self.later, None, None, N, N, device="cpu") if causal == "built" else None

    @staticmethod
    def later(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return q >= k

    @staticmethod
    def near(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score - 0.1 * (q - k).abs()

    def forward(self, x: Tensor) -> Any:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        q, k, v = self.qkv(x).view(B, 3, HEADS, D, N).transpose(3, 4).unbind(1)
        mask = self.mask
        if self.causal == "forward":
            mask = create_block_mask(self.later, None, None, N, N, device=x.device)
        return flex_attention(q, k, v, score_mod=self.near, block_mask=mask).transpose(2, 3).reshape(x.shape)


@pytest.mark.parametrize("causal", ["", "built", "forward"])
def test_flex_attention_counts_all_scores(causal: str) -> None:
    from torch.nn.attention import flex_attention

    hop, x = vars(flex_attention)["flex_attention_hop"], torch.empty(B, C, 8, 8)
    found = count_macs(Flex(causal), x)
    # One product for the scale of each score, and one for each pair of positions in `near`.
    assert (found.macs_matmul, found.macs) == (
        PRODUCTS + PROJECTIONS,
        PRODUCTS + PROJECTIONS + B * HEADS * N * N + N * N,
    )
    assert [*found.remarks] == ["flex_attention counts on all scores: its mask takes nothing off"] * bool(causal)
    assert count_training_macs(Flex(causal), x).macs_matmul == 7 * PRODUCTS // 2 + 2 * PROJECTIONS
    assert vars(flex_attention)["flex_attention_hop"] is hop


def compiled(part: Callable[..., Any]) -> Any:
    return torch.compile(part)


def scripted(part: nn.Module) -> Any:
    return torch.jit.script(part)


def late(x: Tensor) -> Any:
    return x * compiled(torch.sigmoid)(x)


def checkpointed(layer: nn.Module, reentrant: bool) -> nn.Module:
    return Wrapped(lambda x, layer: checkpoint(layer, x, use_reentrant=reentrant), layer)


LAYER = nn.Conv2d(8, 8, 1)
MIX = 16 * 8 * 8


@pytest.mark.parametrize(
    ("make", "macs"),
    [
        (lambda: compiled(LAYER), MIX),
        (lambda: nn.Sequential(compiled(LAYER), Wrapped(late)), MIX + 16 * 8),
        (lambda: Wrapped(compiled(late)), 16 * 8),
        (lambda: nn.DataParallel(LAYER), MIX),
        (lambda: checkpointed(LAYER, reentrant=False), MIX),
        (lambda: checkpointed(LAYER, reentrant=True), MIX),
        (lambda: scripted(LAYER), MIX),
        (lambda: Wrapped(torch.vmap(torch.square)), 0),
    ],
)
def test_a_part_that_is_wrapped_counts_as_it_is_written(make: Callable[[], nn.Module], macs: int) -> None:
    assert count_macs(make(), torch.empty(1, 8, 4, 4)).macs == macs


def test_what_a_checkpoint_computes_again_counts_again() -> None:
    x = torch.empty(1, 8, 4, 4, requires_grad=True)
    block = nn.Sequential(LAYER, nn.ReLU())
    steps = [block, checkpointed(block, reentrant=False), checkpointed(block, reentrant=True)]
    assert [count_training_macs(each, x).macs for each in steps] == [3 * MIX, 4 * MIX, 4 * MIX]


def test_an_operator_without_a_kernel_on_meta_is_refused_with_its_line() -> None:
    with torch.library._scoped_library("mine", "FRAGMENT") as library:
        library.define("bare(Tensor x) -> Tensor")
        library.impl("bare", lambda x: x @ x.mT, "CPU")
        with pytest.raises(
            UncountableError, match=r"because mine::bare at test_higher_order.py:\d+ has no kernel witho"
        ):
            count_macs(Wrapped(lambda x: torch.ops.mine.bare(x)), torch.empty(3, 4))


def test_an_error_of_the_block_itself_is_no_refusal() -> None:
    with pytest.raises(RuntimeError, match="must have same reduction dim"):
        count_macs(Wrapped(lambda x: x @ x), torch.empty(3, 4))
