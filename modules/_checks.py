"""The checks that context modules share: a positive width, an input of the right shape."""

from collections.abc import Iterable

from torch import Tensor


def check_positive(**sizes: int) -> None:
    """Raise ValueError with a sentence for the first size below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")


def check_input(x: Tensor, channels: int, name: str) -> None:
    """Raise ValueError with a sentence unless `x` is [B, channels, H, W]."""
    if x.dim() != 4:
        raise ValueError(f"{name} takes an input [B, C, H, W]; this one has {x.dim()} dimensions")
    if x.size(1) != channels:
        raise ValueError(f"{name} was built for {channels} channels; the input has {int(x.size(1))}")


def check_odd(name: str, **sizes: int) -> None:
    """Raise ValueError with a sentence for the first even size of a window, which would not keep H and W."""
    for size, value in sizes.items():
        if value % 2 == 0:
            raise ValueError(f"{size} is {value}; {name} needs an odd size, so that H and W are kept")


def check_listed(allowed: Iterable[int], **sizes: int) -> None:
    """Raise ValueError with a sentence for the first size that is not among those that are allowed."""
    for size, value in sizes.items():
        if value not in allowed:
            raise ValueError(f"{size} is {value}; it must be one of {', '.join(map(str, allowed))}")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError with a sentence unless `value` is one of those that are allowed."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def check_heads(name: str, channels: int, heads: int) -> None:
    """Raise ValueError with a sentence unless `heads` divides `channels`."""
    if channels % heads:
        raise ValueError(f"channels is {channels}; {name} needs a multiple of heads ({heads})")


def reduced(name: str, channels: int, reduction: int) -> int:
    """`channels // reduction`; ValueError with a sentence if that is none."""
    check_positive(channels=channels, reduction=reduction)
    if channels // reduction < 1:
        raise ValueError(f"{name} has {channels} channels, fewer than reduction ({reduction})")
    return channels // reduction
