"""The three hams and the burger a second time: the paper's equations in float64, one image and one head at a time.

Here a matrix X `[D, n]` is factored into a dictionary D `[D, rank]` and codes C `[rank, n]`, as the paper prints them;
nothing is shared with the modules. Back-propagation through time is autograd through the loops.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Options:
    """Options of a ham; `beta` is read by CD alone."""

    ham: str
    steps: int
    temperature: float
    heads: int = 1
    beta: float = 0.1
    layout: str = "spatial"
    one_step: bool = True


def solve(x: Tensor, dictionary: Tensor, options: Options) -> tuple[Tensor, Tensor, Tensor]:
    """The final dictionary, the final codes, and the codes before the last update, for one X `[D, n]`."""
    dictionary, codes = _iterate(x.detach() if options.one_step else x, dictionary, options)
    return dictionary, _last_codes(x, dictionary, codes, options), codes


def draw(ham: str, batch: int, height: int, rank: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The random dictionaries of a forward, given torch's generator in the state before it."""
    sample = torch.rand if ham == "nmf" else torch.randn
    dictionaries = sample(batch, height, rank, dtype=dtype)
    return dictionaries / dictionaries.square().sum(1, keepdim=True).sqrt()


def burger(x: Tensor, weights: Mapping[str, Tensor], dictionaries: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """The burger in training mode for x `[B, C, H, W]`: its output, and the final dictionaries `[B*heads, D, rank]`."""
    batch, _, height, width = x.shape
    lower, upper = weights["lower.weight"][:, :, 0, 0], weights["upper.weight"][:, :, 0, 0]
    images, final = [], []
    for image in range(batch):
        features = lower @ x[image].reshape(x.shape[1], -1) + weights["lower.bias"][:, None]
        if options.ham == "nmf":
            features = features.clamp(min=0)
        rows = []
        for head, part in enumerate(features.chunk(options.heads)):
            matrix = part.T if options.layout == "channel" else part
            dictionary, codes, _ = solve(matrix, dictionaries[image * options.heads + head], options)
            result = dictionary @ codes
            rows.append(result.T if options.layout == "channel" else result)
            final.append(dictionary.detach())
        images.append((upper @ torch.cat(rows)).reshape(-1, height, width))
    y = torch.stack(images)
    mean = y.mean((0, 2, 3), keepdim=True)
    variance = (y - mean).square().mean((0, 2, 3), keepdim=True)
    y = (y - mean) / (variance + 1e-5).sqrt()
    y = y * weights["norm.weight"][:, None, None] + weights["norm.bias"][:, None, None]
    return (x + y).clamp(min=0), torch.stack(final)


def _iterate(x: Tensor, dictionary: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    codes = _softmax(dictionary.T @ x / options.temperature)
    for _ in range(options.steps):
        if options.ham == "nmf":
            codes = codes * (dictionary.T @ x) / (dictionary.T @ dictionary @ codes + 1e-6)
            dictionary = dictionary * (x @ codes.T) / (dictionary @ codes @ codes.T + 1e-6)
            continue
        directions = dictionary if options.ham == "cd" else dictionary / _length(dictionary).clamp(min=1e-6)
        codes = _softmax(directions.T @ (x / _length(x).clamp(min=1e-12)) / options.temperature)
        shares = codes / (1e-6 + codes.sum(1, keepdim=True))
        dictionary = x @ shares.T
        if options.ham == "cd":
            dictionary = dictionary / _length(dictionary).clamp(min=1e-6)
    return dictionary, codes


def _last_codes(x: Tensor, dictionary: Tensor, codes: Tensor, options: Options) -> Tensor:
    if options.ham == "nmf":
        return codes * (dictionary.T @ x) / (dictionary.T @ dictionary @ codes + 1e-6)
    if options.ham == "cd":
        ridge = dictionary.T @ dictionary + options.beta * torch.eye(dictionary.shape[1], dtype=x.dtype)
        solution: Tensor = torch.linalg.solve(ridge, dictionary.T @ x)
        return solution
    length = _length(x).detach() if options.one_step else _length(x)
    directions = dictionary / _length(dictionary).clamp(min=1e-6)
    return _softmax(directions.T @ (x / (length + 1e-6)) / options.temperature)


def _length(x: Tensor) -> Tensor:
    return x.square().sum(0, keepdim=True).sqrt()


def _softmax(x: Tensor) -> Tensor:
    weights = (x - x.max(0, keepdim=True).values).exp()
    return weights / weights.sum(0, keepdim=True)
