"""Autocast on meta: the dtypes of PyTorch's own, its copies to the byte, and predictions under it."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from conftest import Done
from field_cases import FEW
from torch import Tensor, nn
from torch.nn import functional
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.base.mode import MODES, Mode
from ctxbench.meta import autocast
from ctxbench.meta.autocast import Autocast, Kind
from ctxbench.meta.outputs import trained_input
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Message, MissingColumns
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.macs.metric import METRIC
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.memory.explain import explain
from ctxbench.plugins.memory.measure import measure_allocation
from ctxbench.plugins.memory.norm_rules import THREAD_SUMS
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.worker.measurement import CaseMeasurement

HALF, FULL = torch.float16, torch.float32


def dtype_of(call: Callable[..., Tensor], *dtypes: torch.dtype, device: Kind = "cuda") -> torch.dtype:
    """The dtype of what a call gives for square matrices of these dtypes under autocast to float16."""
    with Autocast(device, HALF):
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
        (lambda x: functional.softmin(x, -1), (HALF,), FULL),
        (lambda x: functional.interpolate(x[None, None], 8), (HALF,), FULL),
        (functional.mse_loss, (HALF, HALF), FULL),
    ],
)
def test_a_call_gives_the_dtype_that_pytorch_documents(
    call: Callable[..., Tensor], given: tuple[torch.dtype, ...], dtype: torch.dtype
) -> None:
    assert dtype_of(call, *given) == dtype


IMAGES: list[Callable[[Tensor], Tensor]] = [
    lambda x: x @ x,
    lambda x: x.softmax(1),
    lambda x: x.half().softmax(1),
    lambda x: x.half() ** 2,
    lambda x: x.half().sum(),
    lambda x: x.half().prod(),
    lambda x: functional.group_norm(x.half(), 2),
    lambda x: functional.interpolate(x.half(), 8, mode="bilinear"),
    lambda x: functional.pad(x.half(), (1, 1, 1, 1), "reflect"),
    lambda x: functional.pad(x.half(), (1, 1, 1, 1)),
    lambda x: functional.mse_loss(x.half(), x.half()),
    lambda x: functional.grid_sample(x.half(), x[..., :2].half(), align_corners=False),
    lambda x: functional.normalize(x.half()),
    lambda x: torch.einsum("bchw,bcvw->bchv", x, x),
    lambda x: torch.cat([x, x.half()]),
    lambda x: torch.fft.rfft2(x.half()).real,
]


@pytest.mark.parametrize("call", IMAGES)
def test_on_the_cpu_the_dtypes_are_those_of_pytorch_s_own_autocast(call: Callable[[Tensor], Tensor]) -> None:
    with torch.autocast("cpu", dtype=HALF):
        real = call(torch.ones(2, 4, 4, 4))
    with Autocast("cpu", HALF):
        predicted = call(torch.empty(2, 4, 4, 4, device="meta"))
    assert (predicted.dtype, predicted.shape) == (real.dtype, real.shape)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pytorch_s_dispatcher_knows_each_operator_of_the_lists(device: Kind) -> None:
    named = autocast._LOWER[device] | autocast._WIDEST[device]
    assert named <= autocast._cast_operators(device)


def full_product(x: Tensor, layer: nn.Conv2d) -> Tensor:
    """A product by a convolution in the dtype that autocast gives, then one in float32."""
    y = layer(x.half() if torch.is_autocast_enabled(x.device.type) else x)
    with torch.autocast(x.device.type, enabled=False):
        return functional.conv2d(y.float(), layer.weight)


@pytest.mark.parametrize("dtype", [None, HALF, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_part_without_autocast_is_predicted_and_counted_on_meta(device: Kind, dtype: torch.dtype | None) -> None:
    module, x = Wrapped(full_product, nn.Conv2d(4, 4, 1, bias=False)), torch.empty(2, 4, 8, 8, device="meta")
    for mode in MODES:
        profile = predict_peak(module, x, mode=mode, device=device, autocast=dtype)
        assert profile.allocations[-1].dtype == "float32"
        assert {block.dtype for block in profile.allocations} >= (
            {"float32"} if dtype is None else {"float32", str(dtype)[6:]}
        )
    assert count_macs(module, x, autocast=Autocast(device, dtype)).macs == 2 * 128 * 16
    assert count_training_macs(module, x, autocast=Autocast(device, dtype)).macs == (2 + 2 + 1) * 128 * 16
    assert not torch.is_autocast_enabled(device)


def test_autocast_that_a_module_switches_on_itself_is_followed() -> None:
    def own(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=HALF):
            return x @ x

    for device in ("cpu", "cuda"):
        blocks = predict_peak(Wrapped(own), torch.empty(8, 8), mode="infer", device=device).allocations
        assert [block.dtype for block in blocks] == ["float16"] * 3  # x is cast twice, as it is no weight


def breads(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Products and elementwise functions, whose casts are the same on the CPU and on CUDA; one weight is used twice."""
    y = torch.relu(torch.mm(x.flatten(2).transpose(1, 2).reshape(-1, 32), first))
    return x.mean() + torch.mm(torch.relu(torch.mm(y, second)), second)


def under_autocast(module: nn.Module, dtype: torch.dtype = HALF) -> nn.Module:
    """PyTorch's own autocast around a forward pass."""
    return Wrapped(torch.autocast("cpu", dtype=dtype)(lambda x, module: module(x)), module)


@pytest.mark.processor
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("mode", MODES)
def test_the_peak_on_the_cpu_is_that_of_pytorch_s_own_autocast(mode: Mode) -> None:
    module = Wrapped(breads, *(nn.Parameter(torch.randn(width, 64)) for width in (32, 64)))
    x = torch.randn(2, 32, 40, 40)
    predicted = predict_peak(module, x, mode=mode, device="cpu", autocast=HALF)
    measured = measure_allocation(under_autocast(module), x, mode=mode)
    assert predicted.peak_bytes == measured.allocated_bytes
    assert predicted.peak_bytes < predict_peak(module, x, mode=mode, device="cpu").peak_bytes


@pytest.mark.processor
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16], ids=str)
def test_the_last_argument_is_cast_first(dtype: torch.dtype) -> None:
    """In training, the peak is where the gradients of a product's weight, summand and input are cast."""
    parts = nn.Parameter(torch.randn(64, 200)), nn.Parameter(torch.randn(200))
    module, x = Wrapped(lambda x, w, bias: torch.addmm(bias, x, w), *parts), torch.randn(3, 64, requires_grad=True)
    predicted = predict_peak(module, x, mode="train", device="cpu", autocast=dtype)
    assert predicted.peak_bytes == measure_allocation(under_autocast(module, dtype), x, mode="train").allocated_bytes
    casts = [block.shape for block in predicted.allocations if block.op.startswith("aten._to_copy")]
    assert casts[:3] == [(64, 200), (3, 64), (200,)]


MARKED = {
    *("linear", "lite_mla", "mhsa", "sra", "area", "swin", "grid", "shsa", "triplet", "cga", "hilo", "rope_attention"),
    *("bra", "dat"),
}


@pytest.mark.slow
@pytest.mark.processor
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("key", registry.names())
def test_every_module_of_the_registry(key: str) -> None:
    options = {"rank": 8} if key.startswith("ham") else FEW.get(key, {})
    module = registry.get(key).build(32, options)
    for mode in MODES:
        x = trained_input(module, torch.randn(1, 32, 24, 20))
        predicted = predict_peak(module, x, mode=mode, device="cpu", autocast=HALF)
        measured = measure_allocation(under_autocast(module), x, mode=mode).allocated_bytes
        assert predicted.marks or predicted.peak_bytes == measured
        assert predicted.peak_bytes <= measured
        of_threads = torch.get_num_threads() > 1 and {*predicted.marks.values()} == {THREAD_SUMS}
        assert not predicted.marks or of_threads or key in MARKED


def test_attention_of_many_heads_is_cast_within() -> None:
    heads = nn.MultiheadAttention(8, 2, batch_first=True)
    module = Wrapped(lambda x, heads: heads(x, x, x, need_weights=False)[0], heads)
    profile = predict_peak(module, torch.empty(1, 4, 8), mode="train", autocast=HALF)
    assert profile.allocations[-1].dtype == "float32"  # the gradient of a weight
    products = [block for block in profile.allocations if block.op.startswith(("aten.mm", "aten.addmm", "aten.bmm"))]
    assert products
    assert {block.dtype for block in products} == {"float16"}


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


class OnDevices(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta:
            raise ValueError("not here")
        out: Tensor = self.layer(x.half()).to(x.dtype)
        return out


def test_a_count_that_fails_costs_a_row_its_count_and_where_nothing_runs_it_is_the_error() -> None:
    def counted(device: str) -> list[MissingColumns]:
        case = Case("own", f"{__file__}:OnDevices", {}, (1, 8, 8, 8), dtype="autocast-float16", device=device)
        messages: list[Message] = []
        METRIC.count(CaseMeasurement(case, Measure(), messages.append))  # type: ignore[misc]  # it has one
        return [each for each in messages if isinstance(each, MissingColumns)]

    (missing,) = counted("cpu")
    assert [*missing.columns] == ["macs", "macs_train"]
    assert str(missing.note) == "own fails on the meta device: ValueError: not here"
    with pytest.raises(ValueError, match="not here"):
        counted("meta")


def test_casts_that_autocast_keeps_are_no_variables_and_their_price_is_right() -> None:
    """Of three layers of wide weights; under autocast each weight has a cast, of 2 MiB."""
    layers = nn.Sequential(*(nn.Linear(1024, 1024, bias=False, device="meta") for _ in range(3)))

    def cast(x: Tensor, layers: nn.Module, kept: bool) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=kept):
            out: Tensor = layers(x)
            return out

    modules = [Wrapped(partial(cast, kept=kept), layers) for kept in (True, False)]
    keeps, frees = (predict_peak(each, torch.empty(1, 1024, device="meta"), mode="infer") for each in modules)
    (sentence,) = [each for each in explain(keeps) if "nothing reads them again" in each]
    assert "4.0 MiB made by aten._to_copy.default" in sentence
    assert "again, since autocast keeps the casts of weights: switch that off by `cache_enabled=False`" in sentence
    assert f"the peak is {frees.peak_bytes / 2**20:.1f} MiB." in sentence
    assert keeps.peak_bytes - frees.peak_bytes == 2 * 2 * 2**20
    assert not any("nothing reads" in each for each in explain(frees))
