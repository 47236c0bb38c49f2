"""Influence of a position of a module's input on positions of its output, by value and by gradient."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ctxbench.meta.without_compiler import without_compiler

# Two outputs are equal if their difference, relative to their largest element, is below this.
AGREES = {torch.float64: 1e-12, torch.float32: 1e-5}
# Standard deviation of the noise on every parameter.
PARAMETER_NOISE = 0.1
# (seed, scale of the input): a saturated softmax can hide a path at one scale, an inactive ReLU at one seed.
TRIALS = ((0, 0.1), (0, 1.0), (1, 0.1), (1, 1.0), (2, 3.0))


def with_noise(module: nn.Module) -> nn.Module:
    """In eval, with noise on all parameters, so that a factor that starts at 0 hides nothing."""
    with torch.no_grad():
        for parameter in module.eval().parameters():
            if parameter.is_floating_point() or parameter.is_complex():
                parameter.add_(PARAMETER_NOISE * torch.randn_like(parameter))
    return module


def forward(module: nn.Module, x: Tensor, seed: int = 1) -> Tensor:
    """One forward pass from a fixed seed, so that a module that draws random numbers draws the same ones."""
    torch.default_generator.manual_seed(seed)
    y: Tensor = module(x)
    return y


def with_change(x: Tensor, position: tuple[int, int]) -> Tensor:
    """`x` with noise added at one position, in all channels, with the standard deviation of `x`."""
    change = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(2), dtype=x.dtype)
    moved = x.clone()
    moved[:, :, *position] += x.std() * change
    return moved


def changed_by(module: nn.Module, x: Tensor, position: tuple[int, int]) -> Tensor:
    """Positions of the output that change when the input changes at one position: [H, W], true or false."""
    with torch.no_grad():
        y = forward(module, x)
        moved = (forward(module, with_change(x, position)) - y).abs().amax(dim=(0, 1))
        return moved > AGREES[y.dtype] * y.abs().max()


def seen_by_gradient(module: nn.Module, x: Tensor, position: tuple[int, int]) -> Tensor:
    """Positions of the input that the gradient of one output position reaches: [H, W], true or false."""
    x = x.clone().requires_grad_()
    y = forward(module, x)[:, :, *position]
    if not y.requires_grad:
        return torch.zeros(x.shape[2:], dtype=torch.bool)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(3), dtype=y.dtype)
    with without_compiler():
        (gradient,) = torch.autograd.grad(y, x, weights, allow_unused=True)
    if gradient is None:
        return torch.zeros(x.shape[2:], dtype=torch.bool)
    size = gradient.abs().amax(dim=(0, 1))
    return size > AGREES[y.dtype] * size.max()


def gradient_reaches(make_module: Callable[[], nn.Module], shape: tuple[int, int, int]) -> str:
    """Reach of an output's gradient to the features of other positions: yes or no, "" for a local module."""
    mixes, reached, middle = False, False, (shape[1] // 2, shape[2] // 2)
    for seed, scale in TRIALS:
        torch.default_generator.manual_seed(seed)
        module = with_noise(make_module())
        x = scale * torch.randn(1, *shape)
        changed, seen = changed_by(module, x, middle), seen_by_gradient(module, x, middle)
        changed[middle] = seen[middle] = False
        mixes, reached = mixes or bool(changed.any()), reached or bool(seen.any())
    return ("yes" if reached else "no") if mixes else ""
