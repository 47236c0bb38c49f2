"""A step of gpu.py: the gradients of operators for arguments of other strides, against those of contiguous ones.

The truth of each is its gradient in float64 on the CPU for contiguous arguments, which tests of PyTorch check by finite
differences. An operator is right if the gradient on the GPU is as near to it with any strides.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from gpu_step import DEVICE, REFUSED, CannotRun, Verdict, go_through, read
from torch import Tensor
from torch.nn import functional as F

KEYS, COLUMNS = ("operator", "dtype", "images"), ("forms", "wrong", "largest_error", "form")
CHANNELS, SIZE = 4, (5, 6)
# The relative error that rounding explains.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.03}
Operator = Callable[..., Tensor]


def ones(x: Tensor) -> Tensor:
    return torch.ones(x.shape[1], dtype=x.dtype, device=x.device)


def weight(x: Tensor, *shape: int) -> Tensor:
    """Fixed weights, the same on each device and in each dtype."""
    count = 1
    for size in shape:
        count *= size
    return torch.linspace(-1, 1, count, dtype=torch.float64).sin().reshape(shape).to(x)


def grid(x: Tensor) -> Tensor:
    return weight(x, 1, *SIZE, 2).expand(x.shape[0], -1, -1, -1)


OPERATORS: Mapping[str, Operator] = {
    "batch_norm train": lambda x: F.batch_norm(x, None, None, ones(x), ones(x), True),
    "batch_norm infer": lambda x: F.batch_norm(x, ones(x), ones(x), ones(x), ones(x), False),
    "group_norm": lambda x: F.group_norm(x, 2, ones(x), ones(x)),
    "instance_norm": lambda x: F.instance_norm(x, weight=ones(x), bias=ones(x)),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "local_response_norm": lambda x: F.local_response_norm(x, 3),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "conv2d 1x1": lambda x: F.conv2d(x, weight(x, 8, CHANNELS, 1, 1)),
    "conv2d 3x3": lambda x: F.conv2d(x, weight(x, 8, CHANNELS, 3, 3), padding=1),
    "conv2d depthwise": lambda x: F.conv2d(x, weight(x, CHANNELS, 1, 3, 3), padding=1, groups=CHANNELS),
    "conv2d grouped": lambda x: F.conv2d(x, weight(x, 8, 2, 3, 3), padding=1, groups=2),
    "conv2d dilated": lambda x: F.conv2d(x, weight(x, 8, CHANNELS, 3, 3), padding=2, dilation=2, stride=2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, weight(x, CHANNELS, 8, 3, 3), stride=2, padding=1),
    **{
        f"interpolate {mode}": lambda x, mode=mode: F.interpolate(x, size=(9, 7), mode=mode)
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
    },
    "interpolate antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
    **{
        f"{name} {dim}": lambda x, call=call, dim=dim: call(x, dim)
        for dim in (1, 2, 3)
        for name, call in {
            "softmax": torch.softmax,
            "log_softmax": torch.log_softmax,
            "cumsum": torch.cumsum,
            "cumprod": torch.cumprod,
            "logcumsumexp": torch.logcumsumexp,
            "logsumexp": torch.logsumexp,
            "sort": lambda x, dim: x.sort(dim)[0],
            "max": lambda x, dim: x.max(dim)[0],
            "topk": lambda x, dim: x.topk(2, dim)[0],
            "var": torch.var,
            "prod": torch.prod,
            "normalize": lambda x, dim: F.normalize(x, dim=dim),
        }.items()
    },
    **{
        call.__name__: call
        for call in (F.relu, F.silu, F.hardswish, F.hardsigmoid, F.mish, F.softplus, F.elu, F.selu, F.logsigmoid)
    },
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "prelu": lambda x: F.prelu(x, ones(x) / 4),
    "glu": lambda x: F.glu(x, 1),
    **{
        f"pad {mode}": lambda x, mode=mode: F.pad(x, (1, 2, 2, 1), mode=mode)
        for mode in ("reflect", "replicate", "circular", "constant")
    },
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "unfold": lambda x: F.unfold(x, 3, padding=1),
    "fold": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1),
    "roll": lambda x: x.roll((1, 2), (2, 3)),
    **{
        f"grid_sample {mode} {padding}": lambda x, mode=mode, padding=padding: F.grid_sample(
            x, grid(x), mode=mode, padding_mode=padding, align_corners=False
        )
        for mode in ("bilinear", "bicubic")
        for padding in ("zeros", "border", "reflection")
    },
    "matmul": lambda x: x @ weight(x, 6, 5),
    "bmm": lambda x: torch.bmm(x.flatten(2), x.flatten(2).transpose(1, 2)),
    "linear": lambda x: F.linear(x, weight(x, 7, 6)),
    "einsum": lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "attention causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "gather": lambda x: x.gather(1, torch.arange(CHANNELS, device=x.device).flip(0).view(1, -1, 1, 1).expand_as(x)),
    "index": lambda x: x[:, [0, 2, 2]],
    "cdist": lambda x: torch.cdist(x.flatten(1, 2), x.flatten(1, 2) + 1),
    "irfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "cat": lambda x: torch.cat([x, 2 * x], 1),
    "mean": lambda x: x.mean((2, 3)),
}


@dataclass(frozen=True)
class Trial:
    """An operator in a dtype, for so many images."""

    operator: str
    dtype: str
    images: int

    def cells(self) -> tuple[str, ...]:
        return self.operator, self.dtype, str(self.images)


def trials() -> list[Trial]:
    return [
        Trial(operator, dtype, images)
        for dtype in ("float32", "bfloat16", "float16")
        for images in (1, 2)
        for operator in OPERATORS
    ]


def measure(out: Path, deadline: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.set_flags(_allow_tf32=False, _fp32_precision=None)
    go_through(trials(), out / "gradients.csv", KEYS, COLUMNS, compared, deadline)


def compared(trial: Trial, device: str = DEVICE) -> list[tuple[object, ...]]:
    """Forms of argument and gradient that were tried, those that are wrong, the largest error and its form."""
    call, kind = OPERATORS[trial.operator], getattr(torch, trial.dtype)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(trial.images, CHANNELS, *SIZE, generator=generator, dtype=torch.float64).to(kind)
    rows = torch.randn(call(x.double()).shape, generator=generator, dtype=torch.float64).to(kind)
    truth = gradient(call, x.double(), rows.double())
    # How far rounding alone moves it: what is contiguous is right within this, or no form is judged.
    plain = error(gradient(call, x.to(device), rows.to(device)), truth)
    errors = {}
    for (name, image), (form, row) in itertools.product(forms(x.to(device)), forms(rows.to(device))):
        if "contiguous" in (name, form):
            errors[f"image {name}, gradient {form}"] = error(gradient(call, image, row), truth)
    limit = max(TOLERANCE[kind], 4 * plain)
    wrong = [name for name, each in errors.items() if not each <= limit]
    worst = max(errors, key=lambda name: errors[name])
    return [(len(errors), len(wrong), f"{errors[worst]:.3g}", worst)]


def gradient(call: Operator, x: Tensor, rows: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(call(x), x, rows)[0]


def error(found: Tensor, truth: Tensor) -> float:
    """The distance to the truth as a share of its length; of what is no number, infinite."""
    share = float((found.double().cpu() - truth).norm() / truth.norm())
    return share if share == share else float("inf")


def forms(x: Tensor) -> list[tuple[str, Tensor]]:
    """The same values contiguous, in each other order of the dimensions, and at every second place of larger memory."""
    found = [("contiguous", x.contiguous())]
    for order in itertools.permutations(range(x.dim())):
        back = [order.index(place) for place in range(x.dim())]
        found.append((f"in order {''.join(map(str, order))}", x.permute(order).contiguous().permute(back)))
    large = torch.zeros([2 * size for size in x.shape], dtype=x.dtype, device=x.device)
    view = large[tuple(slice(None, None, 2) for _ in x.shape)]
    view.copy_(x)
    return [*found, ("every second", view)]


def judge(out: Path) -> Verdict:
    rows = read(out / "gradients.csv")
    if not rows:
        raise CannotRun("no gradient was computed")
    wrong = [row for row in rows if row["wrong"] not in ("", "0")]
    failed = [row for row in rows if row[REFUSED]]
    named: Sequence[str] = [
        f"{' '.join(row[key] for key in KEYS)}: {row['form']}, error {row['largest_error']}" for row in wrong
    ]
    seen = f"{len(rows) - len(wrong) - len(failed)} of {len(rows)} operators right, {len(failed)} without a gradient"
    left = len(trials()) - len(rows)
    return Verdict(not wrong, "; ".join([seen, *named[:5]]), f"{left} operators" if left else "")
