"""Kernels that calibrate a device: each is named by what it does and its sizes, and is known to the prediction.

`product B M N K`, `convolution IMAGES INPUTS OUTPUTS KERNEL SIZE GROUPS DILATION` and its two gradients, `softmax
ROWS COLUMNS` and the like. The name is what a calibration file keeps, so a later version still knows what was measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.base.errors import UsageError, unknown

InputShapes = Sequence[tuple[int, ...]]
# Maps of a probe whose results are kept.
KEPT_MAPS = 8
KEPT_SIZES = ("1 512 512 1 64 1 1", "1 384 384 1 14 1 1")
# The host's time for an operator of a block, on a GPU, comes from so many operators of layers.
LAYERS, TRAINED_LAYERS = "layers 60", "layers gradient 60"
SMALL_MAP = (1, 8, 4, 4)
# Of each class a kernel as large as a segmentation head's on GPUs, and two sizes on processors, whose caches matter.
KERNELS = {
    "cuda": (
        "product 1 4096 4096 4096", "product 1 16384 64 512", "product 1 512 512 16384", "product 1 16384 16384 64",
        "product 8 64 64 16384", "convolution 8 512 512 1 128 1 1", "convolution input 8 512 512 1 128 1 1",
        "convolution weight 8 512 512 1 128 1 1", "convolution 4 512 512 3 64 1 1",
        "convolution input 4 512 512 3 64 1 1", "convolution weight 4 512 512 3 64 1 1",
        "convolution 8 512 512 3 128 512 1", "convolution input 8 512 512 3 128 512 1",
        "convolution weight 8 512 512 3 128 512 1", "softmax 16384 4096", "softmax gradient 16384 4096",
        "attention 4 8 4096 64", "batch_norm 8 512 16384", "batch_norm gradient 8 512 16384", "copy 16384 16384",
        "add 67108864", LAYERS,
    ),
    "cpu": (
        "product 1 1024 1024 1024", "product 1 4096 4096 256", "product 1 196 384 384", "product 1 4096 64 512",
        "product 1 196 48 384", "product 1 512 512 4096", "product 1 4096 4096 64", "product 1 4096 512 64",
        "product 1 384 196 64", "product 1 512 1 4096", "product 1 384 1 196", "product 1600 49 49 32",
        "product 48 49 32 49", "convolution 1 512 512 1 64 1 1", "convolution 1 384 384 1 14 1 1",
        "convolution input 1 512 512 1 64 1 1", "convolution input 1 384 384 1 14 1 1",
        "convolution weight 1 512 512 1 64 1 1", "convolution weight 1 384 384 1 14 1 1",
        *(f"kept convolution{turn} {sizes}" for turn in ("", " input", " weight") for sizes in KEPT_SIZES),
        "convolution 1 512 128 3 64 1 1", "convolution 1 384 96 3 14 1 1", "convolution input 1 512 128 3 64 1 1",
        "convolution weight 1 512 128 3 64 1 1", "convolution input 1 384 96 3 14 1 1",
        "convolution weight 1 384 96 3 14 1 1", "convolution 1 512 512 3 64 512 1",
        "convolution 1 384 384 3 14 384 1", "convolution input 1 512 512 3 64 512 1",
        "convolution weight 1 512 512 3 64 512 1", "convolution weight 1 384 384 3 14 384 1",
        "convolution 1 512 512 7 64 512 1", "convolution 1 384 384 7 14 384 1",
        "convolution input 1 384 384 7 14 384 1", "convolution weight 1 512 512 7 32 512 1",
        "convolution weight 1 384 384 7 14 384 1", "convolution 1 512 512 7 32 512 3",
        "convolution 1 384 384 7 14 384 3", "convolution input 1 384 384 7 14 384 3",
        "convolution 1 512 512 3 64 8 1", "convolution weight 1 512 512 3 32 8 1", "convolution 1 512 128 3 64 1 6",
        "convolution weight 1 512 128 3 64 1 6", "attention 1 8 4096 64", "attention 1 8 196 64",
        "attention 100 16 49 32", "attention 4 12 49 32", "softmax 4096 4096", "softmax 1568 196", "softmax 78400 49",
        "softmax 2352 49", "softmax gradient 4096 4096", "batch_norm 1 512 4096", "batch_norm gradient 1 512 4096",
        "layer_norm 4096 512", "layer_norm gradient 4096 512", "add 16777216", "add 2097152", "add 75264",
        "kept add 2097152", "kept add 75264", "exp 2097152", "exp 75264", "kept gelu 2097152", "kept gelu 75264",
        "copy 4096 512", "copy 196 384", "windows 10 7 512", "windows 2 7 384", "pooling 512 64 8",
        "pooling 384 5 14", "sum 512 4096", "sum 384 196", "kept sum 512 4096", "kept sum 384 196", "small 200",
        LAYERS, TRAINED_LAYERS,
    ),
}  # fmt: skip


class Probe(nn.Module):
    """A kernel as a module, so that the prediction sees it as it sees any other."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


@dataclass(frozen=True)
class KernelProbe:
    """Probe of a name: a module and the shapes of its inputs."""

    name: str
    module: nn.Module
    shapes: InputShapes

    def inputs(self, device: torch.device | str) -> list[Tensor]:
        """Random numbers from 0 to 1, in memory of their own; on the meta device none."""
        return [torch.rand(shape, device=device) for shape in self.shapes]

    @property
    def trains(self) -> bool:
        """Return whether a pass is a training step."""
        return self.name.startswith("layers gradient")

    def step(self, device: torch.device) -> Callable[[], Any]:
        """A pass over new tensors."""
        tensors = self.inputs(device)
        return lambda: self.module(*tensors).sum().backward() if self.trains else self.module(*tensors)


def kernel(name: str) -> KernelProbe:
    """The kernel of this name. UsageError for one that this version does not know."""
    what = " ".join(word for word in name.split() if not word.isdigit())
    sizes = [int(word) for word in name.split() if word.isdigit()]
    if what not in _MAKERS:
        raise unknown("kernel of a calibration", what, _MAKERS)
    try:
        function, shapes = _MAKERS[what](*sizes)
    except TypeError:
        raise UsageError(f"kernel {name!r} of a calibration does not have the sizes of {what!r}") from None
    return KernelProbe(name, Probe(function), shapes)


FunctionWithInputs = tuple[Callable[..., Any], InputShapes]


def _product(batch: int, m: int, n: int, k: int) -> FunctionWithInputs:
    if batch == 1:
        return torch.mm, [(m, k), (k, n)]
    return torch.bmm, [(batch, m, k), (batch, k, n)]


def _convolution(
    images: int, inputs: int, outputs: int, side: int, size: int, groups: int, dilation: int
) -> FunctionWithInputs:
    shapes = [(images, inputs, size, size), (outputs, inputs // groups, side, side)]
    return lambda x, w: functional.conv2d(x, w, padding=side // 2 * dilation, groups=groups, dilation=dilation), shapes


def _gradient(which: int) -> Callable[..., FunctionWithInputs]:
    mask = [which == place for place in range(3)]

    def make(*sizes: int) -> FunctionWithInputs:
        _, (data, weight) = _convolution(*sizes)
        images, _, outputs, side, size, groups, dilation = sizes
        pad, apart = [side // 2 * dilation] * 2, [dilation] * 2

        def function(grad: Tensor, x: Tensor, w: Tensor) -> Any:
            return torch.ops.aten.convolution_backward(
                grad, x, w, None, [1, 1], pad, apart, False, [0, 0], groups, mask
            )[which]

        return function, [(images, outputs, size, size), data, weight]

    return make


def _layer_norm_gradient(rows: int, columns: int) -> FunctionWithInputs:
    def function(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> Any:
        return torch.ops.aten.native_layer_norm_backward(
            grad, x, [columns], mean, rstd, weight, weight, [True, True, True]
        )[0]

    return function, [(rows, columns), (rows, columns), (rows, 1), (rows, 1), (columns,)]


def _batch_norm_gradient(images: int, channels: int, places: int) -> FunctionWithInputs:
    def function(grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> Any:
        return torch.ops.aten.native_batch_norm_backward(
            grad, x, weight, None, None, mean, rstd, True, 1e-5, [True, True, True]
        )[0]

    return function, [(images, channels, places)] * 2 + [(channels,)] * 3


def _kept(make: Callable[..., FunctionWithInputs]) -> Callable[..., FunctionWithInputs]:
    """A kernel over several maps, each with weights of its own.

    The results are kept until the last is there, as training keeps them: no cache holds them all.
    """

    def made(*sizes: int) -> FunctionWithInputs:
        function, shapes = make(*sizes)
        inputs = len(shapes)

        def kept(*tensors: Tensor) -> list[Any]:
            return [function(*tensors[at : at + inputs]) for at in range(0, len(tensors), inputs)]

        return kept, [*shapes] * KEPT_MAPS

    return made


def _small(operators: int) -> FunctionWithInputs:
    """As many operators on one number: what an operator costs that computes nothing."""

    def function(x: Tensor) -> Tensor:
        for _ in range(operators):
            x = torch.add(x, 1.0)
        return x

    return function, [(1,)]


def small_layers(operators: int) -> nn.Sequential:
    """As many operators of small layers, a third each of convolutions, batch norms and activations: as blocks have."""
    return nn.Sequential(*[nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()] * (operators // 3))


def _layers(operators: int, trains: bool = False) -> FunctionWithInputs:
    chain = small_layers(operators).train(trains)

    def function(x: Tensor) -> Any:
        if next(chain.parameters()).device != x.device:
            chain.to(x.device)
        chain.zero_grad()
        return chain(x)

    return function, [SMALL_MAP]


_MAKERS: dict[str, Callable[..., FunctionWithInputs]] = {
    "product": _product,
    "convolution": _convolution,
    "convolution input": _gradient(0),
    "convolution weight": _gradient(1),
    "attention": lambda images, heads, length, width: (
        functional.scaled_dot_product_attention,
        [(images, heads, length, width)] * 3,
    ),
    "softmax": lambda rows, columns: (lambda x: torch.softmax(x, -1), [(rows, columns)]),
    "softmax gradient": lambda rows, columns: (
        lambda grad, out: torch.ops.aten._softmax_backward_data(grad, out, -1, torch.float32),
        [(rows, columns)] * 2,
    ),
    "layer_norm": lambda rows, columns: (
        lambda x, w: functional.layer_norm(x, (columns,), w, w),
        [(rows, columns), (columns,)],
    ),
    "layer_norm gradient": _layer_norm_gradient,
    "batch_norm": lambda images, channels, places: (
        lambda x, w: functional.batch_norm(x, None, None, w, w, training=True),
        [(images, channels, places), (channels,)],
    ),
    "batch_norm gradient": _batch_norm_gradient,
    "add": lambda numbers: (torch.add, [(numbers,)] * 2),
    "exp": lambda numbers: (torch.exp, [(numbers,)]),
    "copy": lambda rows, columns: (lambda x: x.t().contiguous(), [(rows, columns)]),
    "pooling": lambda channels, size, out: (
        lambda x: functional.adaptive_avg_pool2d(x, out),
        [(1, channels, size, size)],
    ),
    "sum": lambda rows, columns: (lambda x: x.sum(-1), [(rows, columns)]),
    "kept add": _kept(lambda numbers: (lambda x: torch.add(x, x), [(numbers,)])),
    "kept gelu": _kept(lambda numbers: (functional.gelu, [(numbers,)])),
    "kept sum": _kept(lambda rows, columns: (lambda x: x.sum(-1), [(rows, columns)])),
    "kept convolution": _kept(_convolution),
    "kept convolution input": _kept(_gradient(0)),
    "kept convolution weight": _kept(_gradient(1)),
    "windows": lambda count, side, channels: (
        lambda x: x.transpose(1, 2).contiguous(),
        [(count, side, count, side * channels)],
    ),
    "small": _small,
    "layers": _layers,
    "layers gradient": lambda operators: _layers(operators, trains=True),
}
