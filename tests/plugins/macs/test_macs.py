"""Multiply-accumulates: exact counts per operator, equality with torchprofile and FlopCounterMode, and bad modules."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from field_cases import FEW
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.metrics.params import count_params
from ctxbench.plugins.macs.counter import count_macs, count_macs_torchprofile
from ctxbench.plugins.macs.watch import UncountableError

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


class Case(NamedTuple):
    """A module or function, the shapes of its inputs, and what each counter must say.

    `torchprofile` and `flops` (FlopCounterMode's floating-point operations, halved) are given where they differ from
    `macs` and `products`.
    """

    call: nn.Module | Callable[..., Any]
    shapes: list[tuple[int, ...]]
    macs: int
    products: int
    torchprofile: int | None = None
    flops: int | None = None

    @property
    def module(self) -> nn.Module:
        return self.call if isinstance(self.call, nn.Module) else Wrapped(self.call)


def self_attention(need_weights: bool) -> nn.Module:
    """Multi-head attention of a sequence over itself."""
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    return Wrapped(lambda x, layer: layer(x, x, x, need_weights=need_weights)[0], layer)


def einsum(equation: str) -> Callable[..., Tensor]:
    return lambda *operands: torch.einsum(equation, *operands)


PRODUCTS = {
    "conv1d": Case(nn.Conv1d(3, 5, 3), [(2, 3, 9)], 2 * 5 * 7 * 9, 630),
    "conv2d": Case(nn.Conv2d(4, 8, 3, padding=1), [(2, 4, 6, 5)], 2 * 8 * 30 * 36, 17280),
    "conv2d of one image": Case(nn.Conv2d(4, 8, 1), [(4, 6, 5)], 8 * 30 * 4, 960),
    "conv2d strided": Case(nn.Conv2d(4, 8, 3, stride=2), [(1, 4, 9, 7)], 8 * 12 * 36, 3456),
    "conv2d dilated": Case(nn.Conv2d(4, 8, 3, dilation=2), [(1, 4, 9, 7)], 8 * 15 * 36, 4320),
    "conv2d grouped": Case(nn.Conv2d(4, 8, 3, groups=2), [(1, 4, 6, 5)], 8 * 12 * 18, 1728),
    "conv2d depthwise": Case(nn.Conv2d(4, 4, 5, padding=2, groups=4), [(1, 4, 6, 5)], 4 * 30 * 25, 3000),
    "conv2d same": Case(nn.Conv2d(2, 3, 3, padding="same"), [(1, 2, 4, 4)], 3 * 16 * 18, 864, torchprofile=0),
    "conv3d": Case(nn.Conv3d(2, 3, 2), [(1, 2, 3, 3, 3)], 3 * 8 * 16, 384),
    # torchprofile charges the weight to each of 2 * 8 * 13 * 11 outputs
    "conv transposed": Case(
        nn.ConvTranspose2d(4, 8, 3, stride=2), [(2, 4, 6, 5)], 2 * 4 * 30 * 72, 17280, torchprofile=82368
    ),
    "conv transposed grouped": Case(
        nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), [(1, 4, 5, 5)], 4 * 25 * 12, 1200, torchprofile=9600
    ),
    "linear 1d": Case(nn.Linear(4, 8), [(4,)], 32, 32),
    "linear 2d": Case(nn.Linear(4, 8), [(3, 4)], 3 * 32, 96),
    "linear 3d": Case(nn.Linear(4, 8), [(2, 3, 4)], 6 * 32, 192),
    "linear 2d without bias": Case(nn.Linear(4, 8, bias=False), [(3, 4)], 96, 96),
    "linear 3d without bias": Case(nn.Linear(4, 8, bias=False), [(2, 3, 4)], 192, 192),
    "matmul 1x1": Case(torch.matmul, [(4,), (4,)], 4, 4, flops=0),
    "matmul 1x2": Case(torch.matmul, [(4,), (4, 5)], 20, 20),
    "matmul 2x1": Case(torch.matmul, [(3, 4), (4,)], 12, 12, flops=0),
    "matmul 2x2": Case(torch.matmul, [(3, 4), (4, 5)], 60, 60),
    "matmul 1x3": Case(torch.matmul, [(4,), (2, 4, 5)], 40, 40),
    "matmul 3x1": Case(torch.matmul, [(2, 3, 4), (4,)], 24, 24, flops=0),
    "matmul 2x3": Case(torch.matmul, [(3, 4), (2, 4, 5)], 120, 120),
    "matmul 3x2": Case(torch.matmul, [(2, 3, 4), (4, 5)], 120, 120),
    "matmul 3x3": Case(torch.matmul, [(2, 3, 4), (2, 4, 5)], 120, 120),
    "matmul broadcast": Case(torch.matmul, [(2, 1, 3, 4), (7, 4, 5)], 2 * 7 * 60, 840),
    "mm": Case(torch.mm, [(3, 4), (4, 5)], 60, 60, torchprofile=0),
    "mv": Case(torch.mv, [(3, 4), (4,)], 12, 12, torchprofile=0, flops=0),
    "bmm": Case(torch.bmm, [(2, 3, 4), (2, 4, 5)], 120, 120),
    "addmm": Case(torch.addmm, [(3, 5), (3, 4), (4, 5)], 60, 60),
    "addmv": Case(torch.addmv, [(3,), (3, 4), (4,)], 12, 12, flops=0),
    "baddbmm": Case(torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)], 120, 120),
    "addbmm": Case(torch.addbmm, [(3, 5), (2, 3, 4), (2, 4, 5)], 120, 120, torchprofile=0, flops=0),
    "einsum product": Case(einsum("bij,bjk->bik"), [(2, 3, 4), (2, 4, 5)], 120, 120),
    "einsum transposed": Case(einsum("bcm, bcn -> bmn"), [(2, 3, 4), (2, 3, 5)], 120, 120),
    "einsum implicit": Case(einsum("ij,jk"), [(3, 4), (4, 5)], 60, 60),
    "einsum ellipsis": Case(einsum("...ij,...jk->...ik"), [(2, 1, 3, 4), (7, 4, 5)], 840, 840, torchprofile=0),
    # One factor of size 1 makes the product an elementwise multiplication, which is no matrix product.
    "einsum of rank 1": Case(einsum("bci,bin->bcn"), [(2, 3, 1), (2, 1, 5)], 30, 0),
    "einsum scaling": Case(einsum("bcn,bn->bcn"), [(2, 3, 5), (2, 5)], 30, 0),
    "einsum sum": Case(einsum("bcn->bc"), [(2, 3, 5)], 30, 0),
    "einsum of three": Case(einsum("ij,jk,kl->il"), [(2, 3), (3, 4), (4, 5)], 120, 64),
    "attention": Case(F.scaled_dot_product_attention, [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)], 2940, 2940),
    "attention causal": Case(
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [(2, 3, 5, 8)], 2400, 2400
    ),
    "bilinear": Case(nn.Bilinear(4, 5, 6), [(7, 4), (7, 5)], 7 * 4 * 5 * 6, 840, torchprofile=0, flops=0),
    "lstm": Case(nn.LSTM(8, 6, 2), [(5, 2, 8)], 10 * 4 * 6 * (14 + 12), 6240),
    "gru": Case(nn.GRU(8, 6), [(5, 2, 8)], 10 * 3 * 6 * 14, 2520, torchprofile=0),
}

ELEMENTWISE = {
    "mul": Case(lambda x, y: x * y, [(2, 3), (2, 3)], 6, 0),
    "mul broadcast": Case(lambda x, y: x * y, [(2, 1), (3,)], 6, 0),
    "mul by a scalar": Case(lambda x: x * 0.5, [(2, 3)], 6, 0),
    "mul in place": Case(lambda x: x.clone().mul_(0.5), [(2, 3)], 6, 0),
    "mul without gradients": Case(torch.no_grad()(lambda x: x * 0.5), [(2, 3)], 6, 0),
    "mul in inference mode": Case(torch.inference_mode()(lambda x: x * 0.5), [(2, 3)], 6, 0),
    "one over x": Case(lambda x: 1 / x, [(2, 3)], 6, 0),
    "batch norm": Case(nn.BatchNorm2d(4), [(2, 4, 3, 3)], 72, 0),
    "batch norm, not affine": Case(nn.BatchNorm2d(4, affine=False), [(2, 4, 3, 3)], 0, 0),
    "instance norm": Case(nn.InstanceNorm2d(4, affine=True), [(2, 4, 3, 3)], 72, 0),
    "instance norm, not affine": Case(nn.InstanceNorm2d(4), [(2, 4, 3, 3)], 0, 0),
    "layer norm": Case(nn.LayerNorm(3), [(2, 4, 3)], 24, 0),
    "layer norm, not affine": Case(nn.LayerNorm(3, elementwise_affine=False), [(2, 4, 3)], 0, 0),
    "batch norm without bias": Case(
        lambda x, weight: F.batch_norm(x, weight, weight, weight), [(2, 4, 3, 3), (4,)], 72, 0
    ),
    "layer norm without bias": Case(nn.LayerNorm(3, bias=False), [(2, 4, 3)], 24, 0),
    "group norm": Case(nn.GroupNorm(2, 4), [(2, 4, 3, 3)], 72, 0),
    "group norm without bias": Case(lambda x, weight: F.group_norm(x, 2, weight), [(2, 4, 3, 3), (4,)], 72, 0),
    "group norm, not affine": Case(nn.GroupNorm(2, 4, affine=False), [(2, 4, 3, 3)], 0, 0),
    "average pool": Case(nn.AvgPool2d(3, 2, 1), [(1, 4, 8, 6)], 4 * 4 * 3, 0),
    "average pool 1d": Case(nn.AvgPool1d(2), [(1, 4, 8)], 16, 0),
    "adaptive average pool": Case(nn.AdaptiveAvgPool2d(3), [(2, 4, 8, 6)], 72, 0),
    "adaptive average pool to one": Case(nn.AdaptiveAvgPool2d(1), [(2, 4, 8, 6)], 8, 0),
    "mean": Case(lambda x: x.mean((2, 3)), [(2, 4, 8, 6)], 8, 0),
    "mean of all": Case(torch.mean, [(2, 4)], 1, 0),
    "leaky relu": Case(nn.LeakyReLU(), [(2, 3)], 6, 0),
    "prelu": Case(nn.PReLU(3), [(2, 3)], 6, 0, torchprofile=0),
    "glu": Case(F.glu, [(2, 6)], 6, 0, torchprofile=0),
    "addcmul": Case(lambda x, y: torch.addcmul(x, x, y), [(2, 3), (2, 3)], 6, 0, torchprofile=0),
    "product of all": Case(lambda x: x.prod(0), [(2, 3)], 6, 0, torchprofile=0),
    "cdist": Case(torch.cdist, [(2, 5, 8), (2, 7, 8)], 2 * 5 * 7 * 8, 0, torchprofile=0),
    "cdist of many": Case(torch.cdist, [(50, 8), (70, 8)], 50 * 70 * 8, 0, torchprofile=0),
    "linear upsampling": Case(nn.Upsample(scale_factor=2, mode="linear"), [(1, 2, 3)], 2 * 12, 0, torchprofile=0),
    "bicubic": Case(nn.Upsample(scale_factor=2, mode="bicubic"), [(1, 2, 3, 3)], 16 * 72, 0, torchprofile=0),
    "trilinear": Case(nn.Upsample(scale_factor=2, mode="trilinear"), [(1, 2, 3, 3, 3)], 8 * 432, 0, torchprofile=0),
    "bilinear upsampling": Case(nn.Upsample(scale_factor=2, mode="bilinear"), [(1, 2, 3, 3)], 4 * 72, 0),
    "grid sample": Case(
        lambda x, grid: F.grid_sample(x, grid, align_corners=False), [(1, 2, 3, 3), (1, 4, 5, 2)], 160, 0
    ),
    "grid sample, three axes": Case(
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        [(1, 2, 3, 3, 3), (1, 4, 5, 6, 3)],
        8 * 240,
        0,
        torchprofile=960,
    ),
    "grid sample, bicubic": Case(
        lambda x, grid: F.grid_sample(x, grid, "bicubic", "border", False), [(1, 2, 3, 3), (1, 4, 5, 2)], 640, 0
    ),
}

FREE = {
    "softmax": Case(lambda x: x.softmax(-1), [(2, 3)], 0, 0),
    "div": Case(lambda x, y: x / y, [(2, 3), (2, 3)], 0, 0),
    "add": Case(lambda x, y: x + y - 1, [(2, 3), (2, 3)], 0, 0),
    "pow": Case(lambda x: x**2, [(2, 3)], 0, 0),
    "sum": Case(lambda x: x.sum(-1), [(2, 3)], 0, 0),
    "activations": Case(lambda x: x.relu().sigmoid().tanh(), [(2, 3)], 0, 0),
    "max pool": Case(nn.MaxPool2d(2), [(1, 2, 4, 4)], 0, 0),
    "nearest": Case(nn.Upsample(scale_factor=2), [(1, 2, 3, 3)], 0, 0),
    "elementwise": Case(lambda x: F.softplus(F.elu(x.exp().log1p())) + F.mish(x) * (x < 0), [(2, 3)], 6, 0),
    "reductions": Case(lambda x: x.var(0) + x.norm(dim=0) + x.logsumexp(0) + x.cumsum(1), [(2, 3)], 0, 0),
    "random numbers": Case(lambda x: x + torch.rand(2, 3, device=x.device), [(2, 3)], 0, 0),
    "views": Case(lambda x: x.reshape(3, 2).t().unsqueeze(0).expand(4, 2, 3), [(2, 3)], 0, 0),
}

CASES = PRODUCTS | ELEMENTWISE | FREE
each_case = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])


def flops(module: nn.Module, *inputs: Tensor) -> int:
    """Count of FlopCounterMode on the meta device, halved."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        copy.deepcopy(module).eval().to("meta")(*(tensor.to("meta") for tensor in inputs))
    return int(counter.get_total_flops()) // 2


@each_case
def test_operator(case: Case) -> None:
    count = count_macs(case.module, *(torch.empty(shape) for shape in case.shapes))
    assert (count.macs, count.macs_matmul, count.uncounted) == (case.macs, case.products, {})


@each_case
def test_operator_in_torchprofile(case: Case) -> None:
    count = count_macs_torchprofile(case.module, *(torch.rand(shape) for shape in case.shapes))
    assert count.macs == (case.macs if case.torchprofile is None else case.torchprofile)


@each_case
def test_operator_in_flop_counter(case: Case) -> None:
    found = flops(case.module, *(torch.empty(shape) for shape in case.shapes))
    assert found == (case.products if case.flops is None else case.flops)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_in_eval_counts_its_products(need_weights: bool) -> None:
    module = self_attention(need_weights).eval()
    x = torch.rand(2, 5, 8)
    products = 10 * 4 * 8**2 + 2 * 5 * 10 * 8
    assert count_macs(module, x).macs_matmul == products
    assert count_macs_torchprofile(module, x).macs_matmul == products


def test_encoder_layer_in_eval_does_not_take_the_fused_path() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.rand(2, 5, 8)
    assert count_macs(layer, x).macs_matmul == 10 * (4 * 64 + 2 * 8 * 16) + 2 * 5 * 10 * 8
    assert count_macs_torchprofile(layer, x).macs_matmul == 10 * (4 * 64 + 2 * 8 * 16) + 2 * 5 * 10 * 8
    assert torch.backends.mha.get_fastpath_enabled()


# torchprofile takes each multiplication of two traced sizes (`height * width`) for one MAC; ours does not.
SIZE_ARITHMETIC = 16


def assert_torchprofile_agrees(module: nn.Module, x: Tensor) -> None:
    """But for scans, which torchprofile does not know."""
    ours, theirs = count_macs(module, x), count_macs_torchprofile(module, x)
    scans = {name: macs for name, macs in ours.by_operator.items() if name.startswith("ctxbench::")}
    assert scans.keys() <= theirs.uncounted.keys()
    assert 0 <= theirs.macs - (ours.macs - sum(scans.values())) <= SIZE_ARITHMETIC


@pytest.mark.parametrize("name", registry.names())
def test_registry_agrees_with_flop_counter(name: str) -> None:
    module, x = registry.get(name).build(64, FEW.get(name, {})), torch.empty(2, 64, 12, 10)
    assert count_macs(module, x).macs_matmul == flops(module, x)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(1, 512, 128, 128), (3, 128, 9, 11)], ids=str)
@pytest.mark.parametrize("name", registry.names())
def test_registry_agrees_with_its_closed_form(name: str, shape: tuple[int, int, int, int], training: bool) -> None:
    entry, hparams = registry.get(name), FEW["vim"] if name == "vim" else {}
    count = count_macs(entry.build(shape[1], hparams), torch.empty(shape, device="meta"), training=training)
    moved = shape[1] * 64 if name == "ema" and training else 0  # the mean of the bases over the batch
    assert entry.closed_form("macs", shape, hparams) == count.macs - moved


def test_ops_without_a_rule_are_listed() -> None:
    def forward(x: Tensor) -> Any:
        noise = torch.rand(4, 4, device=x.device)
        return torch.linalg.inv(x) @ F.normalize(noise) + F.normalize(torch.eye(4, device=x.device)).exp()

    count = count_macs(Wrapped(forward), torch.empty(4, 4))
    assert count.macs == 64
    assert (count.uncounted, count.estimates) == ({"aten::linalg_inv_ex": 1}, {"aten::linalg_inv_ex": 64})


def test_torchprofile_lists_what_it_skips(recwarn: pytest.WarningsRecorder) -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.mm(x, x) + torch.mm(x, torch.linalg.inv(x)) + torch.einsum("...ij,...jk", x, x)

    count = count_macs_torchprofile(Wrapped(forward), torch.eye(4))
    assert count.macs == 0
    assert count.uncounted == {"aten::mm": 2, "aten::linalg_inv": 1, "aten::einsum": 1}
    assert len(recwarn) == 0


def test_parts_of_a_composite_count_once() -> None:
    chained = Wrapped(lambda q: F.scaled_dot_product_attention(q, q, q) * 2)
    assert count_macs(chained, torch.empty(1, 1, 3, 4)).macs == 9 * 8 + 12
    dropout = count_macs(nn.Dropout(0.5), torch.empty(3, 4), training=True)
    assert (dropout.macs, dropout.uncounted) == (0, {})


def test_an_unused_result_counts() -> None:
    def forward(x: Tensor) -> Tensor:
        torch.bmm(x, x)
        return x

    assert count_macs(Wrapped(forward), torch.empty(1, 3, 3)).macs == 27
    assert count_macs_torchprofile(Wrapped(forward), torch.rand(1, 3, 3)).macs == 0


class Stateful(nn.Module):
    """Changes its state in each forward: a buffer, a statistic, a plain attribute, the generator."""

    bases: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("bases", torch.zeros(4))
        self.calls = 0
        self.scale: Any = torch.tensor([1.0, 2.0])  # neither parameter nor buffer

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.bases += torch.rand(4)
        y: Tensor = self.norm(x) * self.scale
        return y * 2 if self.training else y


@pytest.mark.parametrize("training", [False, True])
def test_the_module_is_left_as_it_was(training: bool) -> None:
    module, x = Stateful().train(not training), torch.rand(1, 4, 3, 2)
    weight = module.norm.weight.requires_grad_(False)
    before, generator = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    assert count_macs(module, x, training=training).macs == (72 if training else 48)
    assert count_macs_torchprofile(module, x).macs == 48
    assert module.training is not training
    assert module.calls == 0
    assert module.norm.weight is weight
    assert weight.device.type == "cpu"
    assert torch.equal(torch.get_rng_state(), generator)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_module_and_input_may_be_on_meta(device: str) -> None:
    module = nn.Conv2d(4, 8, 3).to(device)
    assert count_macs(module, torch.empty(1, 4, 5, 5)).macs == 8 * 9 * 36
    assert count_macs(module, torch.empty(1, 4, 5, 5, device="meta")).macs == 8 * 9 * 36


@pytest.mark.parametrize(
    ("forward", "operator"),
    [
        (lambda x: x * x.sum().item(), "aten::_local_scalar_dense"),
        (lambda x: x if x.sum() > 0 else -x, "aten::_local_scalar_dense"),
        (lambda x: x.tolist(), "aten::_to_copy"),
        (lambda x: torch.from_numpy(x.numpy()), ""),
        (lambda x: x.nonzero(), "aten::nonzero"),
        (lambda x: x[x > 0], "aten::index"),
        (lambda x: x.unique(), "aten::_unique2"),
    ],
)
def test_a_forward_that_reads_values_is_refused(forward: Callable[[Tensor], Any], operator: str) -> None:
    where = rf"test_macs\.py:\d+ reads the values of a tensor{f' .{operator}.' if operator else ''}; "
    with pytest.raises(
        UncountableError, match=f"^Wrapped .* because {where}ctxbench run --counter torchprofile counts"
    ):
        count_macs(Wrapped(forward), torch.rand(3))
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(
    ("module", "shape", "error"),
    [
        (nn.Conv2d(4, 8, 3), (1, 3, 5, 5), RuntimeError),
        (nn.Linear(4, 8), (2, 3), RuntimeError),
        (nn.Module(), (2,), NotImplementedError),
        (Wrapped(lambda x: x.metadata), (2,), AttributeError),
    ],
)
def test_the_modules_own_errors_pass_through(module: nn.Module, shape: tuple[int, ...], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        count_macs(module, torch.rand(shape))
    assert not isinstance(caught.value, UncountableError)


def test_params_count_frozen_and_shared_once_and_no_buffers() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    assert count_params(module) == 20 + 8 + 20
    module[2].weight = module[0].weight
    module[0].bias.requires_grad_(False)
    assert count_params(module) == 20 + 8 + 4
