"""Deformable convolutions once more, from their equations, as a yardstick for the tests: plain and slow.

The functions are called as those of `reference_field`.
"""

import torch
from reference_attention import Named, layer_norm, project, sigmoid, window
from reference_blocks import gelu, seen
from reference_field import Reference, joined
from reference_mixers import between
from torch import Tensor

Taps = list[tuple[int, int]]


def window_of(kernel_size: int, dilation: int) -> range:
    return range(-(kernel_size // 2) * dilation, kernel_size // 2 * dilation + 1, dilation)


def by_column(kernel_size: int, dilation: int, remove_center: bool) -> Taps:
    side = window_of(kernel_size, dilation)
    return [(right, down) for right in side for down in side if right or down or not remove_center]


def taken(maps: Tensor, taps: Taps, offsets: Tensor, masks: Tensor, scale: float = 1.0) -> Tensor:
    """Values [C, K, n] at taps (x, y): maps [g, c, H, W], offsets [g, K, 2, n] of (x, y), masks [g, K, n]."""
    height, width = maps.shape[2:]
    columns = []
    for r in range(height):
        for c in range(width):
            groups = []
            for own, places, weights in zip(maps, offsets[..., r * width + c], masks[..., r * width + c], strict=True):
                read = [
                    weight * between(own, r + (down + y) * scale, c + (right + x) * scale)
                    for (right, down), (x, y), weight in zip(taps, places, weights, strict=True)
                ]
                groups.append(torch.stack(read, dim=1))
            columns.append(torch.cat(groups))
    return torch.stack(columns, dim=2)


def dcnv2(
    p: Named, x: Tensor, training: bool, kernel_size: int = 3, dilation: int = 1, deform_groups: int = 1
) -> Tensor:
    height, width = x.shape[2:]
    side, count = window_of(kernel_size, dilation), kernel_size**2
    taps, out = [(right, down) for down in side for right in side], []
    for image in x.flatten(2):
        made = window(image, height, width, p["conv_offset.weight"], p["conv_offset.bias"], dilation)
        moved, masks = made.split((2 * deform_groups * count, deform_groups * count))
        maps = image.reshape(deform_groups, -1, height, width)
        offsets = moved.reshape(deform_groups, count, 2, -1)[:, :, [1, 0]]
        read = taken(maps, taps, offsets, sigmoid(masks).reshape(deform_groups, count, -1))
        out.append(torch.einsum("ock,ckn->on", p["weight"].flatten(2), read) + p["bias"][:, None])
    return joined(out, x)


def dcnv3(
    p: Named,
    x: Tensor,
    training: bool,
    group_width: int = 16,
    kernel_size: int = 3,
    dilation: int = 1,
    offset_scale: float = 1.0,
    dw_kernel_size: int = 0,
    remove_center: bool = False,
) -> Tensor:
    height, width = x.shape[2:]
    taps = by_column(kernel_size, dilation, remove_center)
    assert p["dw_conv.0.weight"].shape[2] == (dw_kernel_size or kernel_size)
    out = []
    for image in x.flatten(2):
        made = seen(image, height, width, p, "dw_conv.0")
        made = gelu(layer_norm(p, "dw_conv.1.1", made, eps=1e-6))
        maps = project(p, "input_proj", image).reshape(-1, group_width, height, width)
        offsets = project(p, "offset", made).reshape(len(maps), len(taps), 2, -1)
        scores = project(p, "mask", made).reshape(len(maps), len(taps), -1).exp()
        read = taken(maps, taps, offsets, scores / scores.sum(1, keepdim=True), offset_scale)
        out.append(project(p, "output_proj", read.sum(1)))
    return joined(out, x)


def dcnv4(
    p: Named,
    x: Tensor,
    training: bool,
    group_width: int = 16,
    kernel_size: int = 3,
    dilation: int = 1,
    offset_scale: float = 1.0,
    dw_kernel_size: int = 0,
    remove_center: bool = False,
    output_bias: bool = False,
) -> Tensor:
    height, width = x.shape[2:]
    taps = by_column(kernel_size, dilation, remove_center)
    assert ("offset_mask_dw.weight" in p, "output_proj.bias" in p) == (dw_kernel_size > 0, output_bias)
    out = []
    for image in x.flatten(2):
        made = seen(image, height, width, p, "offset_mask_dw") if dw_kernel_size else image
        maps = project(p, "value_proj", image).reshape(-1, group_width, height, width)
        own = [project(p, "offset_mask", made)[3 * len(taps) * j :][: 3 * len(taps)] for j in range(len(maps))]
        offsets = torch.stack([each[: 2 * len(taps)].reshape(len(taps), 2, -1) for each in own])
        masks = torch.stack([each[2 * len(taps) :] for each in own])
        out.append(project(p, "output_proj", taken(maps, taps, offsets, masks, offset_scale).sum(1)))
    return joined(out, x)


REFERENCES: dict[str, Reference] = {each.__name__: each for each in (dcnv2, dcnv3, dcnv4)}
