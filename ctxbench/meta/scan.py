"""Scans over the positions, each one operator of torch: what is counted and explained as a whole, whatever computes it.

`torch.ops.ctxbench.NAME` is made of torch's own operators, so it has gradients, compiles, and exports for a fixed size.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


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


def _selective_scan(value: Tensor, step: Tensor, rate: Tensor, enter: Tensor, leave: Tensor, skip: Tensor) -> Tensor:
    """sum_s leave_s h_s + skip value, where h_t = exp(step_t rate_s) h_(t-1) + step_t enter_s,t value_t.

    `value`, `step` and the result: [B, routes, n, D]; `rate`, below 0: [routes, D, states]; `enter`, `leave`:
    [B, routes, n, states]; `skip`: [routes, D]. One state at a time, so that inference holds no map of all; compilers
    and exporters, whose work grows with the number of operators, get all states at once.
    """
    driven, result, rate = step * value, skip.unsqueeze(1) * value, rate.transpose(1, 2).unsqueeze(1)
    if torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
        decay = (step.unsqueeze(3) * rate).flatten(3)  # [B, routes, n, states D]
        states = _states((driven.unsqueeze(3) * enter.unsqueeze(4)).flatten(3), decay)
        return result + (leave.unsqueeze(4) * torch.unflatten(states, 3, (rate.size(2), -1))).sum(3)
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
