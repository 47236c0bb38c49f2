"""Blocks of tokens or of channels-last maps, as modules of maps [B, C, H, W]."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.without_compiler import without_compiler

IMAGE, TOKENS, LAST = "[B, C, H, W]", "[B, N, C]", "[B, H, W, C]"
SIZES, SIZE = "[B, N, C], H, W", "[B, N, C], (H, W)"
# Sizes of a pass without data: multiples of the windows and strides that are in use, then square maps.
TRIED = ((16, 32), (14, 28), (28, 56), (16, 16), (14, 14), (28, 28), (32, 32), (56, 56))
# What forward calls the height and width of tokens.
_SIZE_NAMES = {"size", "hw", "hw_shape", "x_size", "input_size", "resolution", "input_resolution", "spatial_shape"}


class OfMap(nn.Module):
    """A block that takes another layout, as a module [B, C, H, W] to [B, C', H, W].

    The block gets contiguous numbers, as in its own network: a copy of the map, unless that has channels last.
    """

    def __init__(self, block: nn.Module, takes: str) -> None:
        super().__init__()
        self.block, self.takes = block, takes

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        if self.takes == LAST:
            y: Tensor = self.block(x.permute(0, 2, 3, 1).contiguous())
            return y.permute(0, 3, 1, 2)
        sizes = {SIZES: (height, width), SIZE: ((height, width),)}.get(self.takes, ())
        y = self.block(x.flatten(2).transpose(1, 2).contiguous(), *sizes)
        return y.transpose(1, 2).reshape(*x.shape[:1], -1, height, width)


def signed(block: "type[nn.Module]") -> str:
    """The layout that the arguments of forward say; "" where one argument leaves it open."""
    try:
        taken = [*inspect.signature(block.forward).parameters.values()][1:]
    except (TypeError, ValueError):
        return IMAGE
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [each.name for each in taken if each.default is each.empty and each.kind in kinds]
    named = [name.lower() for name in required[1:]]
    if len(named) == 2 and named[0] in ("h", "height") and named[1] in ("w", "width"):
        return SIZES
    if len(named) == 1 and named[0] in _SIZE_NAMES:
        return SIZE
    return "" if len(required) == 1 and not _is_of_maps(block, required[0]) else IMAGE


def of_map(block: nn.Module, channels: int) -> nn.Module:
    """A block as a module of maps: the same, or around it what gives it another layout."""
    takes = signed(type(block)) or _recognised(block, channels)
    return block if takes == IMAGE else OfMap(block, takes)


def _recognised(block: nn.Module, channels: int) -> str:
    """The layout of a block whose forward has one argument: the first in which a pass without data keeps the size."""
    with torch.random.fork_rng(devices=[]):
        try:
            copy = on_meta(block)
        except Exception:  # it holds what cannot be copied
            return IMAGE
        return _fitting(copy, channels, (IMAGE, TOKENS, LAST)) or IMAGE


def width_of(make: Callable[[], nn.Module]) -> tuple[int | None, str]:
    """The number of channels for which a module is made, by the widths of its weights, and the layout that fits it.

    None and "" where no pass without data succeeds.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                block = make()
        except Exception:  # told where it is built to be measured
            return None, ""
        said = signed(type(block))
        for width in dict.fromkeys(_widths(block)):
            if takes := _fitting(block, width, (said,) if said else (IMAGE, TOKENS, LAST)):
                return width, takes
    return None, ""


def _widths(block: nn.Module) -> Iterator[int]:
    """The widths that the weights of a block expect, in the order of its submodules."""
    for each in block.modules():
        for name in ("in_channels", "in_features", "num_features", "num_channels", "embed_dim", "normalized_shape"):
            value = getattr(each, name, None)
            value = value[-1] if isinstance(value, tuple) and value else value
            if isinstance(value, int) and each is not block:
                yield value


def _fitting(block: nn.Module, channels: int, layouts: Sequence[str]) -> str:
    """The first layout in which a pass keeps the size; "" if there is none.

    A size equal to the number of channels would not tell [B, C, H, W] from [B, H, W, C].
    """
    for size in (each for each in TRIED if channels not in each):
        for takes in layouts:
            if _fits(block if takes == IMAGE else OfMap(block, takes), (2, channels, *size)):
                return takes
    return ""


def _fits(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Return whether a pass keeps the batch, height and width."""
    try:
        # Tensors that forward makes have no data, either.
        with without_compiler(), torch.no_grad(), torch.device("meta"):
            y = module.eval()(torch.empty(shape))
    except Exception:  # another layout may fit
        return False
    return isinstance(y, Tensor) and y.dim() == 4 and (y.shape[0], *y.shape[2:]) == (shape[0], *shape[2:])


def _is_of_maps(block: "type[nn.Module]", x: str) -> bool:
    """Return whether the source says that its input is a map: by `b, c, h, w = x.shape`, else by a layer for maps."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(block.forward)))
        own = [each for each in block.__mro__ if not each.__module__.startswith(("torch.", "builtins"))]
        whole = "".join(map(inspect.getsource, own))
    except (OSError, TypeError, SyntaxError):
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(names := node.targets[0], ast.Tuple):
            value = node.value.func if isinstance(node.value, ast.Call) else node.value
            if ast.unparse(value) in (f"{x}.shape", f"{x}.size"):
                sizes = [each.id.lower() if isinstance(each, ast.Name) else "" for each in names.elts]
                return len(sizes) == 4 and not sizes[1].startswith("h")
    return "2d" in whole
