"""Forms for an export to ONNX, which has no operator for an inverse and writes each window of a pooling out.

torch runs its own operators; the forms compute the same up to rounding.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional


def pooled(image: Tensor, grid: int, across: int | None = None) -> Tensor:
    """`adaptive_avg_pool2d`: [B, C, H, W] to [B, C, grid, across], by default a square; exported, two products."""
    grids = grid, grid if across is None else across
    if not torch.onnx.is_in_onnx_export():
        return functional.adaptive_avg_pool2d(image, grids)
    rows, columns = (_windows(size, cells, image) for size, cells in zip(image.shape[2:], grids, strict=True))
    return rows @ image @ columns.T


def _windows(size: int, grid: int, like: Tensor) -> Tensor:
    """[grid, size]: the weight of each place in each window's mean; window i is floor(i*s/g) to ceil((i+1)*s/g)."""
    window = torch.arange(grid, device=like.device).unsqueeze(1)
    begin, end = window * size // grid, ((window + 1) * size + grid - 1) // grid
    place = torch.arange(size, device=like.device)
    return ((place >= begin) & (place < end)).to(like.dtype) / (end - begin).to(like.dtype)


def inverse(matrix: Tensor, smallest: float, largest: float) -> Tensor:
    """The inverse of symmetric matrices [batch, r, r] with eigenvalues in [smallest, largest].

    Exported, Newton's method: X <- X (2 I - A X), from a multiple of I, squares the error I - A X (Schulz, 1933).
    """
    if not torch.onnx.is_in_onnx_export():
        result: Tensor = torch.linalg.inv_ex(matrix).inverse  # without the check, for which CUDA would wait
        return result
    error = (largest - smallest) / (largest + smallest)
    steps = math.ceil(math.log2(math.log(torch.finfo(matrix.dtype).eps) / math.log(error)))
    twice = 2 * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    found = twice / (largest + smallest)
    for _ in range(steps):
        found = found @ (twice - matrix @ found)
    return found
