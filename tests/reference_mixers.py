"""Token mixers that networks are compared with, once more, from their equations: plain and slow.

The functions are called as those of `reference_field`.
"""

import math

import torch
from reference_attention import project
from reference_blocks import gelu, seen, sigmoid
from reference_field import Named, Reference, joined
from torch import Tensor


def pool(p: Named, x: Tensor, training: bool, pool_size: int = 3) -> Tensor:
    height, width = x.shape[2:]
    out, reach = torch.zeros_like(x), pool_size // 2
    for row in range(height):
        for column in range(width):
            rows, columns = slice(max(row - reach, 0), row + reach + 1), slice(max(column - reach, 0), column + reach + 1)
            out[:, :, row, column] = x[:, :, rows, columns].mean((2, 3)) - x[:, :, row, column]
    return out


def dwconv(p: Named, x: Tensor, training: bool, kernel_size: int = 7) -> Tensor:
    assert p["dwconv.weight"].shape[2] == kernel_size
    return joined([seen(image, *x.shape[2:], p, "dwconv") for image in x.flatten(2)], x)


def gated_cnn(
    p: Named,
    x: Tensor,
    training: bool,
    expansion_ratio: float = 8 / 3,
    kernel_size: int = 7,
    conv_ratio: float = 1.0,
) -> Tensor:
    inner, convolved = math.floor(expansion_ratio * x.shape[1]), math.floor(conv_ratio * x.shape[1])
    assert p["conv.weight"].shape == (convolved, 1, kernel_size, kernel_size)
    out = []
    for image in x.flatten(2):
        gate, values = project(p, "fc1", image).split(inner)
        values = torch.cat([values[: inner - convolved], seen(values[inner - convolved :], *x.shape[2:], p, "conv")])
        out.append(project(p, "fc2", gelu(gate) * values))
    return joined(out, x)


def eca(p: Named, x: Tensor, training: bool, kernel_size: int = 0) -> Tensor:
    weight = p["conv.weight"][0, 0]
    assert kernel_size in (0, len(weight))
    out = []
    for image in x.flatten(2):
        mean, reach = image.mean(1), len(weight) // 2
        scores = [
            sum(weight[j] * mean[c + j - reach] for j in range(len(weight)) if 0 <= c + j - reach < len(mean))
            for c in range(len(mean))
        ]
        out.append(image * sigmoid(torch.stack([torch.as_tensor(score) for score in scores]))[:, None])
    return joined(out, x)


def simam(p: Named, x: Tensor, training: bool, e_lambda: float = 1e-4) -> Tensor:
    out = []
    for image in x.flatten(2):
        squares = (image - image.mean(1, keepdim=True)) ** 2
        variance = squares.sum(1, keepdim=True) / max(image.shape[1] - 1, 1)
        out.append(image * sigmoid(squares / (4 * (variance + e_lambda)) + 0.5))
    return joined(out, x)


REFERENCES: dict[str, Reference] = {each.__name__: each for each in (pool, dwconv, gated_cnn, eca, simam)}
