"""Autocast on meta: the dtypes of PyTorch's own, its copies to the byte, and predictions under it."""

from collections.abc import Callable

import pytest
import torch
from conftest import Done
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.base.mode import MODES, Mode
from ctxbench.plugins.memory.autocast import Autocast
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.measure import measure_allocation
from ctxbench.plugins.memory.predict import predict_peak

HALF, FULL = torch.float16, torch.float32


def dtype_of(call: Callable[..., Tensor], *dtypes: torch.dtype) -> torch.dtype:
    """The dtype of what a call gives for square matrices of these dtypes under autocast to float16."""
    with Autocast(HALF):
        return call(*(torch.ones(4, 4, dtype=dtype, device="meta") for dtype in dtypes)).dtype


@pytest.mark.parametrize(
    ("call", "given", "dtype"),
    [
        (torch.matmul, (FULL, FULL), HALF),
        (lambda x, y: x @ y, (FULL, HALF), HALF),
        (functional.linear, (FULL, FULL), HALF),
        (lambda x, y: torch.einsum("ij,jk->ik", x, y), (FULL, FULL), HALF),
        (torch.matmul, (torch.float64, torch.float64), torch.float64),
        (lambda x: functional.softmax(x, -1), (HALF,), FULL),
        (lambda x: x.softmax(-1), (HALF,), FULL),
        (lambda x: x.sum(), (HALF,), FULL),
        (lambda x: x**2, (HALF,), FULL),
        (lambda x: 1 / x, (HALF,), FULL),
        (lambda x: functional.layer_norm(x, (4,)), (HALF,), FULL),
        (lambda x, y: torch.cat([x, y]), (HALF, FULL), FULL),
        (lambda x, y: torch.cat([x, y]), (HALF, HALF), HALF),
        (torch.relu, (HALF,), HALF),
        (torch.add, (HALF, FULL), FULL),
    ],
)
def test_a_call_gives_the_dtype_that_pytorch_documents(
    call: Callable[..., Tensor], given: tuple[torch.dtype, ...], dtype: torch.dtype
) -> None:
    assert dtype_of(call, *given) == dtype


class Breads(nn.Module):
    """Products and elementwise functions, whose casts are the same on the CPU and on CUDA; one weight is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(32, 64)), nn.Parameter(torch.randn(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(torch.mm(x.flatten(2).transpose(1, 2).reshape(-1, 32), self.first))
        return x.mean() + torch.mm(torch.relu(torch.mm(y, self.second)), self.second)


class UnderAutocast(nn.Module):
    """PyTorch's own autocast around a forward pass."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=HALF):
            out: Tensor = self.module(x)
        return out


@pytest.mark.processor
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("mode", MODES)
def test_the_peak_on_the_cpu_is_that_of_pytorch_s_own_autocast(mode: Mode) -> None:
    module, x = Breads(), torch.randn(2, 32, 40, 40)
    predicted = predict_peak(module, x, mode=mode, device="cpu", autocast=HALF)
    measured = measure_allocation(UnderAutocast(module), x, mode=mode)
    assert predicted.peak_bytes == measured.allocated_bytes
    assert predicted.peak_bytes < predict_peak(module, x, mode=mode, device="cpu").peak_bytes


def test_what_cannot_be_followed_is_refused() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.empty(1, 4, 8)
    with pytest.raises(UnpredictableError, match="whose casts under autocast are not known"):
        predict_peak(module, x, x, x, mode="train", autocast=HALF)


@pytest.mark.processes
def test_choose_and_predict_take_autocast(command: Callable[..., Done]) -> None:
    options = ("--memory", "2GiB", "--shape", "1,64,16,16", "--device", "t4", "--modules", "linear,sa")
    done = command("choose", *options, "--dtype", "autocast-float16")
    assert done.returncode == 0, done.stderr
    assert "no predicted time" not in done.stdout
    assert "no GPU has confirmed them" in done.stdout
    done = command("predict", "linear", "--for", "t4", "--shape", "1,64,16,16", "--dtype", "autocast-float16")
    assert done.returncode == 0, done.stderr
    assert "_to_copy" in done.stdout
