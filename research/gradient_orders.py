"""Gradients of operators on the CPU for one order of the arriving gradient in memory beside those for another.

`python research/gradient_orders.py` writes results/gradient-proofs/orders.csv in seconds: for each operator, number of
spatial dimensions and images, how many gradients were `tried`, and how many were `wrong`. A gradient has the same
elements in each permutation of its strides, and of a dimension of size one also with two other strides. What it gives
is compared with what the contiguous one gives, which `gradient_proofs.py` holds against central differences.
"""

import itertools
from collections.abc import Callable, Iterator

import pandas as pd
import torch
from gradient_proofs import OUT, drawn
from torch import Tensor, nn
from torch.nn import functional

CHANNELS = 4
SIDES = (5, 6, 3)
SAME = 1e-9
Make = Callable[[int], Callable[[Tensor], Tensor]]


def layer(name: str, *arguments: object, **options: object) -> Make:
    """A layer of torch.nn by its name without the number of dimensions."""
    return lambda dims: getattr(nn, f"{name}{dims}d")(*arguments, **options).double()


OPERATORS: dict[str, Make] = {
    "batch norm": layer("BatchNorm", CHANNELS),
    "batch norm in eval": lambda dims: layer("BatchNorm", CHANNELS)(dims).eval(),  # type: ignore[attr-defined]  # a layer
    "instance norm": layer("InstanceNorm", CHANNELS),
    "group norm": lambda dims: nn.GroupNorm(2, CHANNELS).double(),
    "layer norm": lambda dims: lambda x: functional.layer_norm(x, x.shape[1:]),
    "convolution": layer("Conv", CHANNELS, 6, 3, padding=1),
    "depthwise convolution": layer("Conv", CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS),
    "transposed convolution": layer("ConvTranspose", CHANNELS, 6, 3, padding=1),
    "average pooling": layer("AvgPool", 2, 1),
    "maximum pooling": layer("MaxPool", 2, 1),
    "adaptive pooling": layer("AdaptiveAvgPool", 2),
    "nearest": lambda dims: lambda x: functional.interpolate(x, scale_factor=2.0),
    "softmax": lambda dims: lambda x: x.softmax(1),
    "GELU": lambda dims: functional.gelu,
}


def orders(gradient: Tensor) -> Iterator[Tensor]:
    """The same elements in each order in memory, and with other strides where a size is one."""
    for order in itertools.permutations(range(gradient.dim())):
        back = [order.index(at) for at in range(gradient.dim())]
        moved = gradient.permute(order).contiguous().permute(back)
        yield moved
        for at in (at for at, size in enumerate(gradient.shape) if size == 1):
            for stride in (1, CHANNELS):
                yield moved.as_strided(moved.shape, [*moved.stride()[:at], stride, *moved.stride()[at + 1 :]])


def rows() -> Iterator[dict[str, object]]:
    for (name, make), dims, images in itertools.product(OPERATORS.items(), (1, 2, 3), (1, 2)):
        operator, tried, wrong = make(dims), 0, 0
        x = drawn(images, CHANNELS, *SIDES[:dims]).requires_grad_()
        y = operator(x)
        given = drawn(*y.shape)
        (right,) = torch.autograd.grad(y, x, given, retain_graph=True)
        for each in orders(given):
            (found,) = torch.autograd.grad(y, x, each, retain_graph=True)
            tried += 1
            wrong += bool((found - right).norm() > SAME * right.norm())
        yield {
            "operator": name,
            "dims": dims,
            "images": images,
            "tried": tried,
            "wrong": wrong,
            "torch": torch.__version__,
        }


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = pd.DataFrame(rows())
    print(found[found.wrong > 0].to_string(), f"{found.tried.sum()} tried, {found.wrong.sum()} wrong", sep="\n")
    found.to_csv(OUT / "orders.csv", index=False)
