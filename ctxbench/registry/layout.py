"""Blocks of tokens or of channels-last maps, as modules of maps [B, C, H, W]."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.base.texts import counted
from ctxbench.meta.built import without_data
from ctxbench.meta.on_meta import on_meta
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.registry.hyperparameter import BESIDE

IMAGE, TOKENS, LAST = "[B, C, H, W]", "[B, N, C]", "[B, H, W, C]"
SIZES, SIZE = "[B, N, C], H, W", "[B, N, C], (H, W)"
# Tokens with the images of a batch second, as `nn.MultiheadAttention` takes them by default.
FIRST = "[N, B, C]"
# Height and width.
Size = tuple[int, int]
# Sizes of a pass without data: multiples of the windows and strides that are in use, then square maps.
TRIED = ((16, 32), (14, 28), (28, 56), (16, 16), (14, 14), (28, 28), (32, 32), (56, 56))
# Bytes of a block that is given data to try layouts on the CPU.
LARGEST = 2**28
# What forward calls the height and width of tokens, as one argument.
_SIZE_NAMES = {"size", "hw", "hw_shape", "x_size", "input_size", "resolution", "input_resolution", "spatial_shape"}


class OfMap(nn.Module):
    """A block that takes another layout, as a module [B, C, H, W] to [B, C', H, W].

    The block gets contiguous numbers, as in its own network: a copy of the map, unless that has channels last. Tokens
    that it takes `beside` the map are ones here; in its network they come from the layer before. Theirs are dropped
    from the output.
    """

    def __init__(self, block: nn.Module, takes: str) -> None:
        super().__init__()
        self.block, self.takes = block, takes
        count = getattr(block, BESIDE.name, 0)
        self.beside = count if type(count) is int and takes not in (IMAGE, LAST) else 0

    @property
    def told(self) -> str:
        """Layout that the block takes, in words."""
        return self.takes + f" with {counted(self.beside, 'token')} before the positions" * (self.beside > 0)

    def forward(self, x: Tensor) -> Any:
        height, width = x.shape[2:]
        if self.takes == LAST:
            y = self.block(x.permute(0, 2, 3, 1).contiguous())
            return y.permute(0, 3, 1, 2) if isinstance(y, Tensor) else y
        sizes = {SIZES: (height, width), SIZE: ((height, width),)}.get(self.takes, ())
        tokens = x.flatten(2).permute((2, 0, 1) if self.takes == FIRST else (0, 2, 1))
        if self.beside:
            tokens = functional.pad(tokens, [0] * (4 if self.takes == FIRST else 2) + [self.beside, 0], value=1)
        y = self.block(tokens.contiguous(), *sizes)
        if not isinstance(y, Tensor):
            return y
        y = y.transpose(0, 1) if self.takes == FIRST and y.dim() == 3 else y
        count = self.beside + height * width
        if y.dim() != 3 or y.shape[:2] != (x.shape[0], count):
            raise ValueError(f"as a block of tokens it makes {list(y.shape)} of {[*x.shape[:1], count, x.shape[1]]}")
        return y[:, self.beside :].transpose(1, 2).reshape(*x.shape[:1], -1, height, width)


def forms(block: "type[nn.Module]") -> tuple[str, ...]:
    """The layouts to try, by the arguments of forward and what it calls the sizes of its input, the likeliest first."""
    try:
        taken = [*inspect.signature(block.forward).parameters.values()][1:]
    except (TypeError, ValueError):
        return (IMAGE,)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [each.name for each in taken if each.default is each.empty and each.kind in kinds]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in taken)
    if takes_any and not required and block.forward is not nn.Module.forward:
        return _by_sizes([])
    named = [name.lower() for name in required[1:]]
    match named:
        case []:
            return _by_sizes(_named_sizes(block, required[0])) if required else (IMAGE,)
        case [size]:
            return (SIZE,) if size in _SIZE_NAMES else (SIZE, IMAGE)
        case [height, width]:
            return (SIZES,) if (height[0], width[0]) == ("h", "w") else (SIZES, IMAGE)
    return (IMAGE,)


def _by_sizes(names: Sequence[str]) -> tuple[str, ...]:
    """The layouts to try where forward unpacks the shape of its input into these names."""
    if len(names) == 4:
        return (LAST, IMAGE, TOKENS) if names[1].startswith("h") else (IMAGE,)
    if len(names) == 3 and names[1].startswith("b"):
        return FIRST, LAST, IMAGE
    return (TOKENS, LAST, IMAGE) if len(names) == 3 else (IMAGE, TOKENS, LAST)


def of_map(block: nn.Module, channels: int, size: Size | None = None, said: str = "") -> nn.Module:
    """A block as a module of maps: the same, or around it what gives it the layout that is `said`, or that it takes."""
    tried = (said,) if said else forms(type(block))
    takes = tried[0] if len(tried) == 1 else _recognised(block, channels, size, tried)
    return block if takes == IMAGE else OfMap(block, takes)


def _recognised(block: nn.Module, channels: int, size: Size | None, tried: Sequence[str]) -> str:
    """The first layout in which a pass without data keeps the size; where none does, the likeliest."""
    with torch.random.fork_rng(devices=[]):
        try:
            copy = on_meta(block)
        except Exception:  # it holds what cannot be copied
            return IMAGE
        found = _fitting(copy, channels, tried, size, kept=False) or _with_data(copy, channels, tried)
        return found or (IMAGE if tried[0] in (SIZE, SIZES) else tried[0])


def _with_data(block: nn.Module, channels: int, tried: Sequence[str]) -> str:
    """The same by passes on the CPU, of a small block that reads numbers of its tensors; its weights are zeros."""
    if sum(each.nbytes for each in chain(block.parameters(), block.buffers())) > LARGEST:
        return ""
    block = block.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in chain(block.parameters(), block.buffers()):
            tensor.zero_()
    return _fitting(block, channels, tried, device="cpu", sizes=TRIED[:1], kept=False)


def accepts(make: Callable[[], nn.Module], channels: int, size: Size | None, kept: bool = False) -> bool:
    """Return whether a module can be made, and takes an input in some layout: one of this size, or of a usual one.

    With `kept`, its output has to have the size of the input.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            block = without_data(make)
        except Exception:  # no arguments for it
            return False
        if kept:
            return bool(_fitting(block, channels, forms(type(block)), size))
        passes = ((each, takes) for each in ([size] if size else TRIED[:4]) for takes in forms(type(block)))
        return any(_passed(_as(block, takes), (2, channels, *each)) is not None for each, takes in passes)


def width_of(make: Callable[[], nn.Module]) -> tuple[int | None, str]:
    """The number of channels for which a module is made, by the widths of its weights, and the layout that fits it.

    None and "" where no pass without data succeeds.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            block = without_data(make)
        except Exception:  # told where it is built to be measured
            return None, ""
        for width in dict.fromkeys(_widths(block)):
            if takes := _fitting(block, width, forms(type(block))):
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


def _fitting(
    block: nn.Module,
    channels: int,
    layouts: Sequence[str],
    own: Size | None = None,
    *,
    kept: bool = True,
    sizes: Sequence[Size] = TRIED,
    device: str = "meta",
) -> str:
    """The first layout in which a pass keeps the size, its `own` or another that is tried; "" if there is none.

    Unless the size is to be `kept`, a map that is taken suffices.

    A size equal to the number of channels would not tell [B, C, H, W] from [B, H, W, C], and comes last.
    """
    tells = [each for each in ([own] if own and channels not in own else sizes) if channels not in each]
    for size in (*tells, *([own] if own and own not in tells else [])):
        for takes in layouts:
            y = _passed(_as(block, takes), (2, channels, *size), device)
            if isinstance(y, Tensor) and y.dim() == 4 and (y.shape[0], *y.shape[2:]) == (2, *size):
                return FIRST if takes == TOKENS and _takes_images_second(block, (2, channels, *size), device) else takes
            if not kept and takes in (IMAGE, LAST) and y is not None and channels not in size:
                return takes
    return ""


def _takes_images_second(block: nn.Module, shape: tuple[int, ...], device: str) -> bool:
    """Return whether a block of tokens hands the images of a batch to a part that takes positions there.

    Such a part says so: `batch_first` is False in it. Given [B, N, C], it would relate the images to each other.
    """
    seen: list[Sequence[int]] = []
    parts = [each for each in block.modules() if getattr(each, "batch_first", None) is False]
    handles = [
        each.register_forward_pre_hook(
            lambda _, inputs, named: seen.extend(t.shape for t in (*inputs, *named.values())[:1]), with_kwargs=True
        )
        for each in parts
    ]
    _passed(_as(block, TOKENS), shape, device)
    for handle in handles:
        handle.remove()
    return any(each[0] == shape[0] for each in seen) and _passed(_as(block, FIRST), shape, device) is not None


def _as(block: nn.Module, takes: str) -> nn.Module:
    return block if takes == IMAGE else OfMap(block, takes)


def _passed(module: nn.Module, shape: tuple[int, ...], device: str = "meta") -> Any:
    """The output of a pass on zeros, by default without data; None where it fails."""
    try:
        # Tensors that forward makes are there, too.
        with without_compiler(), torch.no_grad(), torch.device(device):
            return module.eval()(torch.zeros(shape))
    except Exception:  # another layout may fit
        return None


def _named_sizes(block: "type[nn.Module]", x: str) -> list[str]:
    """The names into which forward unpacks the shape of its input, as in `b, c, h, w = x.shape`; else none."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(block.forward)))
    except (OSError, TypeError, SyntaxError):
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(names := node.targets[0], ast.Tuple):
            value = node.value.func if isinstance(node.value, ast.Call) else node.value
            if ast.unparse(value) in (f"{x}.shape", f"{x}.size"):
                return [each.id.lower() if isinstance(each, ast.Name) else "" for each in names.elts]
    return []
