"""Modules that each break one rule of the contract, and some that meet it."""

import builtins
import os
import random
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench import register


class Base(nn.Module):
    """A module that mixes everything; the ones below each break one rule."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Conv2d(channels, channels, 1)
        self.value = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.weight(x).flatten(2).softmax(2)  # [B, C, n]
        context = (weights * self.value(x).flatten(2)).sum(2)
        return torch.add(x, context[:, :, None, None])


def with_forward(forward: Callable[[Callable[[Tensor], Tensor], Tensor], Any]) -> type[nn.Module]:
    """`Base` with another forward, of its own one and the input."""

    class Broken(Base):
        def forward(self, x: Tensor) -> Any:
            return forward(super().forward, x)

    return Broken


Pair = with_forward(lambda base, x: (x, x))
Doubles = with_forward(lambda base, x: torch.cat([base(x)] * 2, dim=1))
Swapped = with_forward(lambda base, x: base(x).reshape(*x.shape[:2], x.shape[3], x.shape[2]))
Widened = with_forward(lambda base, x: base(x).double())
Divides = with_forward(lambda base, x: base(x) / (x - x))
OnTheCpu = with_forward(lambda base, x: base(x) + torch.ones(x.shape[1:]))
NoSinglePosition = with_forward(lambda base, x: base(x) / (x.shape[2] * x.shape[3] - 1))
Detached = with_forward(lambda base, x: base(x.detach()))
NoHalf = with_forward(lambda base, x: base(x) + torch.ones(x.shape[1:], dtype=torch.float32, device=x.device))
Overflows = with_forward(lambda base, x: base(x) * 1e5 / 1e5)
Constant = with_forward(lambda base, x: torch.ones_like(x))
Halves = with_forward(lambda base, x: base(x)[:, :, ::2, ::2])
Several = with_forward(lambda base, x: {"out": base(x)})
Scores = with_forward(lambda base, x: base(x).mean((2, 3)))
Nothing = with_forward(lambda base, x: None)
SquareOnly = with_forward(lambda base, x: base(x).view(x.shape[0], -1, x.shape[2], x.shape[2]))
Overwrites = with_forward(lambda base, x: base(functional.relu(x, inplace=True)))


def doing(action: Callable[[], object]) -> type[nn.Module]:
    """`Base` that does something in each forward pass."""
    return with_forward(lambda base, x: (action(), base(x))[1])


Prints = doing(lambda: print("forward called"))
PrintsPastPython = doing(lambda: os.write(2, b"from a library\n"))
Reseeds = doing(lambda: torch.manual_seed(0))
Threads = doing(lambda: torch.set_num_threads(torch.get_num_threads() + 1))
OneThread = doing(lambda: torch.set_num_threads(1))


class Needs(Base):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels)


class Starred(Base):
    def __init__(self, channels: int, **options: int) -> None:
        super().__init__(channels)


class Untyped(Base):
    def __init__(self, channels: int, reduction=16) -> None:  # type: ignore[no-untyped-def]  # the type is what lacks
        super().__init__(channels)


class MixesTheBatch(Base):
    """Hidden behind a factor of zero at the start."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gamma * super().forward(x.softmax(0))


class Remembers(Base):
    """Keeps its outputs by the identity of their inputs."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.kept: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if id(x) not in self.kept:
            self.kept[id(x)] = super().forward(x)
        return self.kept[id(x)]


class RemembersTheLast(Base):
    last: Any = (None, None)

    def forward(self, x: Tensor) -> Tensor:
        if x is not self.last[0]:
            self.last = x, super().forward(x)
        kept: Tensor = self.last[1]
        return kept


class StopsTheClock(Base):
    def forward(self, x: Tensor) -> Tensor:
        time.perf_counter_ns = lambda: 0
        return super().forward(x)


def another_softmax(x: Tensor, dim: int) -> Tensor:
    return x.log_softmax(dim).exp()


class ReplacesAMethod(Base):
    def forward(self, x: Tensor) -> Tensor:
        torch.Tensor.softmax = another_softmax  # type: ignore[method-assign, assignment]  # what is tested
        builtins.sum = lambda *values: 0  # type: ignore[assignment]  # what is tested
        return super().forward(x)


class Unused(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.spare = nn.Linear(3, 3)


class RootOfZero(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + (y - y).sqrt()


class Random(Base):
    generator = torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(1, generator=self.generator).to(x)


class Counts(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


class Lazy(Base):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "bases"):
            self.register_buffer("bases", torch.rand(x.shape[1], 1, 1, dtype=x.dtype))
        bases: Tensor = self.get_buffer("bases")
        return super().forward(x) * bases


class Hidden(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.scale = torch.rand(1, dtype=torch.float64).item()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class StaysInTrain(Base):
    def train(self, mode: bool = True) -> "StaysInTrain":
        self.weight.train()
        self.training = mode
        return self


class ReadsMemoryOrder(Base):
    def forward(self, x: Tensor) -> Tensor:
        _, channels, height, width = x.shape
        return super().forward(x) + x.as_strided(x.shape, (channels * height * width, height * width, width, 1))


class Local(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.depthwise(x))


class Pointwise(nn.Conv2d):
    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 1)


class Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mul(x, self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None])


class ReseedsPython(Base):
    def __init__(self, channels: int) -> None:
        random.seed(0)
        super().__init__(channels)


class Branches(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if y.sum().item() > 0 else -y


@register("wrong_forms", title="Wrong", listed=False, params="2*C**2 + C", macs="2*N*C**2 + N*C")
class WrongParams(Base):
    pass


@register("mixes", title="Mixes", listed=False, macs="2*N*C**2 + N*C", position_mixing=False)
class SaysUnmixed(Base):
    pass


@register("says_kept", title="Kept", listed=False)
class SaysKept(Doubles):  # type: ignore[misc, valid-type]
    pass


@register("says_local", title="Local", listed=False, reach="7*7", macs="2*N*C**2 + N*C")
class SaysLocal(Base):
    pass


@register("right_forms", title="Right", listed=False, params="2*C**2 + 2*C", macs="2*N*C**2 + N*C")
class RightForms(Base):
    pass


class Float32Only(Base):
    def forward(self, x: Tensor) -> Tensor:
        weights = self.weight(x).flatten(2).softmax(2)
        bases = torch.eye(x.shape[1])  # of the default dtype
        context = ((bases @ weights) * self.value(x).flatten(2)).sum(2)
        return torch.add(x, context[:, :, None, None])


class Tokens(Base):
    def forward(self, x: Tensor) -> Tensor:
        _, _, channels = x.shape
        return x[:, :, :channels]


class NoSuper(Base):
    def __init__(self, channels: int) -> None:
        self.weight = nn.Conv2d(channels, channels, 1)


class NoChannels(Base):
    def __init__(self) -> None:
        super().__init__(8)


class Of24Channels(Base):
    def __init__(self, channels: int) -> None:
        super().__init__(24)


class OnCuda(Base):
    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError("Torch not compiled with CUDA enabled")


class Guided(Base):
    def forward(self, x: Tensor, guide: Tensor) -> Tensor:  # type: ignore[override]  # one more argument
        return super().forward(x) + guide


class Net(nn.Conv2d):
    def __init__(self, classes: int = 4) -> None:
        super().__init__(3, classes, 3, 2)


class Windows(Base):
    """Attends in windows of 8 x 8, and takes no other maps."""

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        parts = x.view(batch, channels, height // 8, 8, width // 8, 8).permute(0, 2, 4, 1, 3, 5)
        mixed = super().forward(parts.reshape(-1, channels, 8, 8)).view(parts.shape)
        return mixed.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


class Spectrum(nn.Module):
    """Has no weight at all, as the transform of FNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        out: Tensor = torch.fft.fft2(wide, norm="ortho").real
        return out.to(x.dtype)


class Volume(Base):
    """Has weights of five dimensions, which have no channels_last format."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.along = nn.Conv3d(1, 1, (1, 3, 3), padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.along(x[:, None])[:, 0])
