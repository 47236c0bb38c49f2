"""The burger that the three hams share: lower bread, initial bases, the reach of the gradient, upper bread."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ._checks import check_choice, check_input, check_positive

EPSILON = 1e-6


class Hamburger(nn.Module):
    """The V1 burger of Geng et al., ICLR 2021: relu(x + norm(upper(ham(lower(x))))), `[B, C, H, W]` to the same.

    Between the breads a subclass factors the matrix `X [B*heads, D, n]` into bases `M [B*heads, D, rank]` and codes
    `Z [B*heads, n, rank]` and returns `M Z^T`. In the spatial layout the n = H*W positions are the columns of X and
    D = d/heads; in the channel layout the d/heads channels are its columns and D = H*W.

    `d` is the inner width (None: `channels`), `steps` the number K of alternating updates, `temperature` the T of the
    softmax. `gradient="one_step"` differentiates the last update of the codes alone, with bases and earlier codes
    constant (section 3.2); `"bptt"` goes back through all steps and gives the exact gradient of the output.

    `init` is one of the four of Appendix F: "random" draws new bases for each image on each forward, from torch's
    generator; "fixed" keeps one draw, shared by the images, for good; "learned" trains it (with bptt, since the
    one-step gradient does not reach it; its columns are kept at unit length and, for NMF, at their absolute values);
    "online" moves it by `eta` towards the batch mean of the final bases on each training forward, and never in eval.
    The published code differs on "online": it moves the bases in eval forwards, and leaves training to a call that
    its training loop has commented out.

    `without` leaves a part out, for the ablation of section 3.1: the ham (and with it the ReLU that only NMF needs), a
    bread or both. The batch norm and the skip connection, which are not in the breads (equation 6), stay.

    Raises ValueError for hyper-parameters that do not fit together, and in forward for an input of another rank or
    width or with fewer columns than `rank`.
    """

    non_negative = False
    carries_codes = False
    bases: Tensor  # [heads, D, rank]; absent when init is "random"

    def __init__(
        self,
        channels: int,
        *,
        d: int | None = None,
        rank: int = 64,
        steps: int = 6,
        temperature: float = 0.01,
        heads: int = 1,
        layout: Literal["spatial", "channel"] = "spatial",
        init: Literal["random", "fixed", "learned", "online"] = "random",
        gradient: Literal["one_step", "bptt"] = "one_step",
        eta: float = 0.9,
        without: Literal["nothing", "ham", "lower", "upper", "breads"] = "nothing",
    ) -> None:
        super().__init__()
        inner = channels if d is None else d
        check_positive(channels=channels, d=inner, rank=rank, steps=steps, heads=heads)
        if inner % heads:
            raise ValueError(f"the inner width d = {inner} is not divisible by heads = {heads}")
        _check_choices(layout, init, gradient, without)
        if without in ("lower", "upper", "breads") and inner != channels:
            raise ValueError(f"without={without!r} leaves no projection between d = {inner} and {channels} channels")
        require_positive("temperature", temperature)
        if not 0 < eta <= 1:
            raise ValueError(f"eta is {eta}; it must be above 0 and at most 1")
        self.channels, self.rank, self.steps, self.heads = channels, rank, steps, heads
        self.layout, self.init, self.gradient, self.without = layout, init, gradient, without
        self.sharpness, self.eta = 1 / temperature, eta
        self.head_width = inner // heads

        self.lower = nn.Conv2d(channels, inner, 1)
        self.upper = nn.Conv2d(inner, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels, momentum=3e-4)
        for bread in (self.lower, self.upper):
            nn.init.normal_(bread.weight, std=math.sqrt(2 / bread.out_channels))
        for name in ("lower", "upper"):
            if without in (name, "breads"):
                setattr(self, name, nn.Identity())
        if without == "ham":
            return
        if init == "learned":
            self.bases = nn.Parameter(self._draw(heads, self.head_width))
        elif init != "random":
            self.register_buffer("bases", self._draw(heads, self.head_width))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, C, H, W]` to `[B, C, H, W]`."""
        check_input(x, self.channels, type(self).__name__)
        y = self._features(x)
        if self.without != "ham":
            y = self._ham(y)
        y = self.norm(self.upper(y))
        return functional.relu(y + x, inplace=True)

    def matrix(self, x: Tensor) -> Tensor:
        """X `[B*heads, D, n]`, the matrix that the ham factors, of an input `[B, C, H, W]`."""
        return self._columns(self._features(x))

    def decompose(self, x: Tensor, bases: Tensor) -> tuple[Tensor, Tensor]:
        """From X and initial bases to `M Z^T`, of X's shape, and the final bases."""
        raise NotImplementedError

    def solving(self) -> AbstractContextManager[None]:
        """The context for the steps that only back-propagation through time differentiates."""
        return nullcontext() if self.gradient == "bptt" else torch.no_grad()

    def _features(self, x: Tensor) -> Tensor:
        """Input of the ham, `[B, d, H, W]`."""
        y: Tensor = self.lower(x)
        if self.non_negative and self.without != "ham":
            y = functional.relu(y, inplace=y is not x)
        return y

    def _columns(self, features: Tensor) -> Tensor:
        x = features.flatten(2)
        x = x.reshape(-1, self.head_width, x.shape[2])
        x = x.transpose(1, 2) if self.layout == "channel" else x
        if self.rank > x.shape[2]:
            raise ValueError(
                f"rank = {self.rank} is more than the {x.shape[2]} columns that the {self.layout} layout makes "
                f"of an input of height {features.shape[2]} and width {features.shape[3]}"
            )
        return x

    def _ham(self, features: Tensor) -> Tensor:
        """Low-rank reconstruction of features `[B, d, H, W]`."""
        y = self.solve(self._columns(features), features.shape[0])
        if self.layout == "channel":
            y = y.transpose(1, 2)
        return y.reshape(features.shape)

    def solve(self, x: Tensor, batch: int) -> Tensor:
        """`M Z^T` for X of `batch` images, from `initial_bases`; in training, online bases move."""
        y, bases = self.decompose(x, self.initial_bases(x, batch))
        if self.init == "online" and self.training:
            self._move_bases(bases)
        return y

    def initial_bases(self, x: Tensor, batch: int) -> Tensor:
        """The bases `[B*heads, D, rank]` that a forward starts from, for X of `batch` images."""
        if self.init == "random":
            return self._draw(x.shape[0], x.shape[1], x.dtype, x.device)
        bases = self.bases
        if self.init == "learned":
            bases = unit_columns(bases.abs() if self.non_negative else bases)
        return bases.repeat(batch, 1, 1)

    def _draw(
        self, batch: int, height: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> Tensor:
        """Unit bases `[batch, height, rank]`: uniform for NMF, normal otherwise."""
        draw = torch.rand if self.non_negative else torch.randn
        return unit_columns(draw(batch, height, self.rank, dtype=dtype, device=device))

    @torch.no_grad()
    def _move_bases(self, final: Tensor) -> None:
        mean = final.reshape(-1, *self.bases.shape).mean(0, dtype=self.bases.dtype)
        self.bases.copy_(unit_columns(self.bases.lerp(mean, self.eta)))


def unit_columns(x: Tensor, epsilon: float = 1e-12) -> Tensor:
    """Divide each column of `[..., rows, columns]` by its length, or by epsilon if that is larger."""
    # float16 has no 1e-12: a zero column would be divided by zero
    return functional.normalize(x, dim=-2, eps=max(epsilon, torch.finfo(x.dtype).tiny))


def assign_columns(directions: Tensor, bases: Tensor, sharpness: float) -> Tensor:
    """Soft assignment of unit columns `[batch, D, n]` to unit bases: codes `[batch, n, rank]`, columns summing to 1."""
    codes = torch.softmax(sharpness * (directions.transpose(1, 2) @ bases), dim=2)
    return codes / (EPSILON + codes.sum(dim=1, keepdim=True))


def require_positive(name: str, value: float) -> None:
    """Raise ValueError unless a hyper-parameter is above 0."""
    if not value > 0:
        raise ValueError(f"{name} is {value}; it must be above 0")


def _check_choices(layout: str, init: str, gradient: str, without: str) -> None:
    for name, value in (("layout", layout), ("init", init), ("gradient", gradient), ("without", without)):
        check_choice(name, value, get_args(Hamburger.__init__.__annotations__[name]))
    if init == "learned" and gradient == "one_step":
        raise ValueError('the one-step gradient does not reach learned bases; init="learned" needs gradient="bptt"')
    if layout == "channel" and init != "random":
        raise ValueError(
            f"init={init!r} needs the bases' height when the module is made; in the channel layout it is H*W of the "
            'input, so only init="random" works'
        )
