"""Workspace allocations of the kernels of fused attention, after PyTorch's sources."""

from typing import Any

import torch
from torch import Tensor

from ctxbench.plugins.memory.kernel_rules import Call, Sizes, size_of

_HALF = (torch.float16, torch.bfloat16)
_SPLIT_FREE = 308  # 0.8 * 2 * 192, blocks of queries: from there on no device with up to 192 multiprocessors splits


def flash_cuda(call: Call) -> Sizes | str:
    """Nothing, unless few queries meet many keys: these are split by the number of multiprocessors."""
    query, key = call.args[:2]
    batch, heads, queries, channels = query.shape
    dropout = call.args[3] if len(call.args) > 3 else 0.0
    keys_a_block = 256 if channels <= 64 else 128 if channels <= 128 else 64
    if not dropout and key.shape[2] > keys_a_block and batch * heads * _blocks(queries, 64) < _SPLIT_FREE:
        return "few queries: their keys are split by the device's number of multiprocessors, one more map for each"
    return []


def flash_backward_cuda(call: Call) -> Sizes | str:
    """Copies of gradient and output; sums of gradient * output; the query's gradient in float32, both padded.

    Where several heads of queries share one of keys, also the gradients of keys and values for each head of queries.
    """
    grad, query, key, out = call.args[0], call.args[1], call.args[2], call.args[4]
    if torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled():
        return "deterministic: one gradient of the query for each part of the device's multiprocessors"
    batch, heads, queries, channels = query.shape
    rows = 128 * _blocks(queries, 128)
    step = 32 if channels <= 128 else 64
    sums = 4 * batch * heads * rows
    expanded = [] if heads == key.shape[1] else [size_of(key) * heads // key.shape[1]] * 2
    return [*_copies_by_token(grad, out), sums, sums * step * _blocks(channels, step), *expanded]


def efficient_cuda(call: Call) -> Sizes:
    """The output in float32, for half types with more channels than the registers hold."""
    query, key, value = call.args[:3]
    wide = query.dtype in _HALF and max(key.shape[3], value.shape[3]) > 128
    return [4 * query[..., 0].numel() * value.shape[3]] if wide else []


def efficient_backward_cuda(call: Call) -> Sizes | str:
    """A copy of the gradient; sums of gradient * output; tiles of 64 x 64 of the query's gradient in float32.

    For float32 the sums are PyTorch's operators: the product is freed before the tiles are allocated.
    """
    grad, query, value = call.args[0], call.args[1], call.args[3]
    batch, heads, queries, channels = query.shape
    if max(channels, value.shape[3]) > 64:
        return "above 64 channels a head, the tiles of its workspace depend on the device's shared memory"
    copies, sums = _copies_by_token(grad), 4 * batch * heads * queries
    tiles = 4 * batch * heads * _blocks(queries, 64) * 4100  # a tile of floats and 4 words for its lock
    if query.dtype in _HALF:
        return [*copies, sums, tiles]
    by_token = 0 if 1 in (heads, queries) else sums  # the sums as [batch, queries, heads]
    product = sums * value.shape[3]
    return [*copies, sums, *([product, by_token] if product + by_token > tiles else [tiles])]


def efficient_outputs(call: Call, out: Any) -> Any:
    """The seed of the dropout and its offset are on the host, unless a graph is captured."""
    return (*out[:2], *(torch.empty((), dtype=torch.long) for _ in out[2:]))


def safe_softmax(call: Call) -> Sizes:
    """A contiguous input; then a boolean for each number that is minus infinity and for each such row, and a zero."""
    source, out = call.args[0], call.out[0]
    copy = [] if source.is_contiguous() else [size_of(source)]
    booleans = [out.numel(), out.numel() // out.shape[call.args[1]], out.element_size()]
    return max(copy, booleans, key=sum)


def flash_outputs_cpu(call: Call, out: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The sums of the softmax in the dtype that they are computed in; since PyTorch 2.14 meta has float32."""
    return out[0], out[1].to(torch.promote_types(call.args[0].dtype, torch.float32))


def flash_cpu(call: Call) -> Sizes | str:
    """For each thread a tile of the affinity, two numbers for each of its rows, and a tile of the output."""
    query, key = call.args[:2]
    if query.dtype in _HALF:
        return "half types are packed as the processor needs it"
    rows, columns = _tile_cpu(query, key)
    return [torch.get_num_threads() * rows * (columns + 2 + query.shape[3]) * query.element_size()]


def flash_backward_cpu(call: Call) -> Sizes | str:
    """A copy of the gradient; for each thread two tiles of the affinity and a number for each of their rows."""
    grad, query, key = call.args[:3]
    if query.dtype in _HALF:
        return "half types are packed as the processor needs it"
    rows, columns = _tile_cpu(query, key)
    tiles = 2 * torch.get_num_threads() * rows * columns * query.element_size()
    return [*_copies_by_token(grad), tiles, rows * query.element_size()]


def _tile_cpu(query: Tensor, key: Tensor) -> tuple[int, int]:
    queries = query.shape[2]
    return min(queries, 256 if queries >= 768 else 64 if queries >= 192 else 32), min(key.shape[2], 512)


def _copies_by_token(*maps: Tensor) -> list[int]:
    """A copy of each map [batch, heads, positions, channels] whose heads of one position are not side by side."""
    return [size_of(tensor) for tensor in maps if not tensor.transpose(1, 2).is_contiguous()]


def _blocks(length: int, size: int) -> int:
    return -(-length // size)
