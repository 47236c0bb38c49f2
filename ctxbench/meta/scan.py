"""Scans over the positions, each one operator of torch: what is counted and explained as a whole, whatever computes it.

`torch.ops.ctxbench.NAME` is made of torch's own operators, so it has gradients, compiles, and exports for a fixed size.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Numbers of a piece's map of all states: in float32 1 MB, like the second-level cache of the AMD EPYC where it was
# tried. Half and twice as much took longer there (processor time, 256 channels of 16 states, 4096 positions).
PIECE = 2**18
# Numbers of a map of one state from which on pieces took less time there: 0.63 to 0.91 of it, below up to 1.3.
LARGE = 4 * PIECE
_STANDS_FOR_CPU: ContextVar[bool] = ContextVar("stands_for_cpu", default=False)


@contextmanager
def on_meta_as_on_cpu(asked: bool) -> Iterator[None]:
    """Have a scan of tensors on meta take the operators that it takes on the CPU, if asked for."""
    token = _STANDS_FOR_CPU.set(asked)
    try:
        yield
    finally:
        _STANDS_FOR_CPU.reset(token)


def _states(value: Tensor, decay: Tensor) -> Tensor:
    """h_t = exp(decay_t) h_(t-1) + value_t over the last dimension but one, from h = 0; both [..., n, D].

    Odd-even recursion: neighbours are joined, a scan of half the length gives every second state, one step the others.
    Each exponential is of a sum of logarithms, and none is divided by another: small ones become 0, nothing overflows.
    Products of exponentials would lose decays near 1, which are rounded. The channels of a position lie side by side in
    memory, so that every second position is read in whole rows.
    """
    length = value.size(-2)
    if isinstance(length, torch.SymInt) and torch.onnx.is_in_onnx_export():
        raise NotImplementedError("a scan has as many steps as the logarithm of its length: export it for one size")
    if length < 2:
        return value
    pairs = length // 2
    joined = torch.addcmul(value[..., 1::2, :], value[..., : 2 * pairs : 2, :], decay[..., 1::2, :].exp())
    odd = _states(joined, decay[..., : 2 * pairs : 2, :] + decay[..., 1::2, :])
    before = functional.pad(odd, (0, 0, 1, 0))  # the state before each second position, from the first on
    even = torch.addcmul(value[..., ::2, :], decay[..., ::2, :].exp(), before[..., : length - pairs, :])
    if length % 2:
        return torch.stack((before, even), -2).flatten(-3, -2)[..., 1:, :]
    return torch.stack((even, odd), -2).flatten(-3, -2)


def _read(
    driven: Tensor, step: Tensor, rate: Tensor, enter: Tensor, leave: Tensor, last: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """sum_s leave_s h_s, all states at once, from h = `last`, and the last h, [B, routes, states, D].

    `rate`: [routes, 1, states, D]; the others as `_selective_scan` has them.
    """
    value, decay = driven.unsqueeze(3) * enter.unsqueeze(4), step.unsqueeze(3) * rate  # [B, routes, n, states, D]
    if last is not None:
        value[:, :, 0].addcmul_(last, decay[:, :, 0].exp())
    states = torch.unflatten(_states(value.flatten(3), decay.flatten(3)), 3, (rate.size(2), -1))
    return (leave.unsqueeze(4) * states).sum(3), states[:, :, -1]


def _read_in_pieces(positions: int, driven: Tensor, step: Tensor, rate: Tensor, enter: Tensor, leave: Tensor) -> Tensor:
    """The same in pieces of so many positions, each from the last h of the one before."""
    found, last = [], None
    for parts in zip(*(each.split(positions, 2) for each in (driven, step, enter, leave)), strict=True):
        driven, step, enter, leave = parts
        read, last = _read(driven, step, rate, enter, leave, last)
        found.append(read)
    return torch.cat(found, 2)


def _selective_scan(value: Tensor, step: Tensor, rate: Tensor, enter: Tensor, leave: Tensor, skip: Tensor) -> Tensor:
    """sum_s leave_s h_s + skip value, where h_t = exp(step_t rate_s) h_(t-1) + step_t enter_s,t value_t.

    `value`, `step` and the result: [B, routes, n, D]; `rate`, below 0: [routes, D, states]; `enter`, `leave`:
    [B, routes, n, states]; `skip`: [routes, D]. One state at a time, so that inference holds no map of all. Compilers
    and exporters, whose work grows with the number of operators, get all states at once. So does the CPU in inference
    where a map of one state is far larger than its cache, in pieces of the positions: an operator finds in the cache
    what the one before it has written. A GPU, which has to start each operator, would take longer in pieces.
    """
    driven, result, rate = step * value, skip.unsqueeze(1) * value, rate.transpose(1, 2).unsqueeze(1)
    if torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
        return result + _read(driven, step, rate, enter, leave)[0]
    on_cpu = value.device.type == "cpu" or (value.device.type == "meta" and _STANDS_FOR_CPU.get())
    if on_cpu and rate.size(2) > 1 and driven.numel() >= LARGE and not torch.is_grad_enabled():
        positions = max(1, PIECE // (value[:, :, 0].numel() * rate.size(2)))
        return result + _read_in_pieces(positions, driven, step, rate, enter, leave)
    for state in range(rate.size(2)):
        states = _states(driven * enter[..., state, None], step * rate[:, :, state])
        result = torch.addcmul(result, leave[..., state, None], states)
    return result


def _wkv(value: Tensor, key: Tensor, decay: Tensor, first: Tensor) -> Tensor:
    """Weighted mean of `value` [B, n, C] at each position t; `key` [B, n, C], `decay` and `first` [C].

    The weight of position i is exp(key_i - (|t - i| - 1) decay), that of t itself exp(key_t + first). The largest key
    of a channel is subtracted first, which is exact unless decays and keys both leave the range of the dtype.
    """
    weight = (key - key.amax(1, keepdim=True)).exp()
    pair = torch.stack((weight * value, weight))  # numerator and denominator
    states = _states(torch.stack((pair, pair.flip(2))), -decay.expand_as(value[0]))
    before, after = functional.pad(states, (0, 0, 1, -1))  # without the position itself
    total: Tensor = before + after.flip(2) + first.exp() * pair
    return total[0] / total[1]


_ARGUMENTS: dict[Callable[..., Tensor], str] = {
    _selective_scan: "value, step, rate, enter, leave, skip",
    _wkv: "value, key, decay, first",
}
for _function, _names in _ARGUMENTS.items():
    _name = f"ctxbench::{_function.__name__[1:]}"
    torch.library.define(_name, f"(Tensor {_names.replace(', ', ', Tensor ')}) -> Tensor")
    torch.library.impl(_name, "CompositeImplicitAutograd", _function)

selective_scan: Callable[..., Tensor] = torch.ops.ctxbench.selective_scan
wkv: Callable[..., Tensor] = torch.ops.ctxbench.wkv
SCANS: tuple[Any, ...] = (selective_scan, wkv)
