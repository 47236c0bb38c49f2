"""Blocks of detectors once more, from their equations, as a yardstick for the tests: plain and slow.

The functions are called as those of `reference_field`.
"""

import math

import torch
from reference_attention import Named, attend, layer_norm, normalise, project, sigmoid, soft, window
from reference_blocks import gelu, seen
from reference_field import Reference, joined
from reference_mixers import between
from torch import Tensor


def lska(p: Named, x: Tensor, training: bool, kernel_size: int = 23) -> Tensor:
    height, width = x.shape[2:]
    near, far, dilation = {7: (3, 3, 2), 11: (3, 5, 2), 23: (5, 7, 3)}[kernel_size]
    assert near + dilation * (far - 1) == kernel_size
    unit, out = "spatial_gating_unit", []
    for image in x.flatten(2):
        features = weights = gelu(project(p, "proj_1", image))
        for name, own in (("conv0h", 1), ("conv0v", 1), ("conv_spatial_h", dilation), ("conv_spatial_v", dilation)):
            weights = seen(weights, height, width, p, f"{unit}.{name}", own)
        out.append(image + project(p, "proj_2", features * project(p, f"{unit}.conv1", weights)))
    return joined(out, x)


def lsk(p: Named, x: Tensor, training: bool) -> Tensor:
    height, width = x.shape[2:]
    unit, out = "spatial_gating_unit", []
    for image in x.flatten(2):
        features = gelu(project(p, "proj_1", image))
        near = seen(features, height, width, p, f"{unit}.conv0")
        far = project(p, f"{unit}.conv2", seen(near, height, width, p, f"{unit}.conv_spatial", 3))
        near = project(p, f"{unit}.conv1", near)
        both = torch.cat([near, far])
        summary = torch.stack([both.mean(0), both.amax(0)])
        weight, bias = (p[f"{unit}.conv_squeeze.{name}"] for name in ("weight", "bias"))
        of_near, of_far = (
            sigmoid(window(summary, height, width, weight[i : i + 1], bias[i : i + 1])) for i in range(2)
        )
        out.append(image + project(p, "proj_2", features * project(p, f"{unit}.conv", near * of_near + far * of_far)))
    return joined(out, x)


def caa(p: Named, x: Tensor, training: bool, kernel_size: int = 11, norm: bool = False) -> Tensor:
    height, width = x.shape[2:]
    assert p["h_conv.conv.weight"].shape[3] == kernel_size
    mean = torch.full((x.shape[1], 1, 7, 7), 1 / 49, dtype=x.dtype)

    def mixed(name: str, images: list[Tensor]) -> list[Tensor]:
        images = [project(p, f"{name}.conv", image) for image in images]
        if norm:
            images = [each * sigmoid(each) for each in normalise(p, f"{name}.bn", images, training, eps=1e-3)]
        return images

    scales = mixed("conv1", [window(image, height, width, mean, None) for image in x.flatten(2)])
    for strip in ("h_conv.conv", "v_conv.conv"):
        scales = [seen(each, height, width, p, strip) for each in scales]
    scales = mixed("conv2", scales)
    return joined([image * sigmoid(each) for image, each in zip(x.flatten(2), scales, strict=True)], x)


def ela(
    p: Named, x: Tensor, training: bool, kernel_size: int = 7, group_width: int = 1, norm_groups: int = 16
) -> Tensor:
    weight = p["conv.weight"]  # [C, group_width, kernel_size]
    channels, reach = len(weight), kernel_size // 2

    def gate(line: Tensor) -> Tensor:
        length = line.shape[1]
        rows = []
        for channel in range(channels):
            first = channel // group_width * group_width
            own = line[first : first + group_width]
            total = torch.zeros(length, dtype=line.dtype)
            for tap in range(kernel_size):
                for place in range(length):
                    if 0 <= place + tap - reach < length:
                        part = torch.zeros(length, dtype=line.dtype)
                        part[place] = 1
                        total = total + part * (weight[channel, :, tap] @ own[:, place + tap - reach])
            rows.append(total)
        out = []
        for group in torch.stack(rows).chunk(norm_groups):
            centred = group - group.mean()
            out.append(centred / torch.sqrt((centred**2).mean() + 1e-5))
        return sigmoid(torch.cat(out) * p["gn.weight"][:, None] + p["gn.bias"][:, None])

    return torch.stack([each * gate(each.mean(2))[:, :, None] * gate(each.mean(1))[:, None] for each in x])


def triplet(p: Named, x: Tensor, training: bool, kernel_size: int = 7, no_spatial: bool = False) -> Tensor:
    def gates(name: str, planes: Tensor) -> Tensor:
        """Weights of the planes [B, axis to pool, first, second]."""
        weight = p[f"{name}.conv.conv.weight"]
        assert weight.shape[2] == kernel_size
        height, width = planes.shape[2:]
        summaries = [torch.stack([plane.amax(0), plane.mean(0)]).flatten(1) for plane in planes]
        found = [window(each, height, width, weight, None) for each in summaries]
        found = [sigmoid(each).reshape(height, width) for each in normalise(p, f"{name}.conv.bn", found, training)]
        return torch.stack(found)

    total = gates("cw", x.transpose(1, 2))[:, :, None]
    total = total + gates("hc", x.permute(0, 3, 2, 1)).transpose(1, 2)[:, :, :, None]
    if no_spatial:
        return x * total / 2
    return x * (total + gates("hw", x)[:, None]) / 3


def shsa(p: Named, x: Tensor, training: bool, partial_dim: int = 0, qk_dim: int = 16) -> Tensor:
    width = partial_dim or 3 * x.shape[1] // 14
    maps = []
    for image in x.flatten(2):
        centred = image[:width] - image[:width].mean()
        normed = centred / torch.sqrt((centred**2).mean() + 1e-5)
        normed = normed * p["pre_norm.weight"][:, None] + p["pre_norm.bias"][:, None]
        maps.append(project(p, "qkv.c", normed))
    mixed = []
    for image, own in zip(x.flatten(2), normalise(p, "qkv.bn", maps, training), strict=True):
        query, key, value = own.split([qk_dim, qk_dim, width])
        context = attend(query, key, value, qk_dim**-0.5)
        mixed.append(project(p, "proj.1.c", torch.cat([context, image[width:]]).clamp(min=0)))
    return joined(normalise(p, "proj.1.bn", mixed, training), x)


def dat(
    p: Named,
    x: Tensor,
    training: bool,
    head_width: int = 32,
    group_width: int = 64,
    kernel_size: int = 5,
    stride: int = 2,
    offset_range: float = -1.0,
    table_size: int = 14,
) -> Tensor:
    height, width = x.shape[2:]
    rows, columns = -(-height // stride), -(-width // stride)
    last = [max(side - 1, 1) for side in (height, width, rows, columns)]
    assert p["conv_offset.0.weight"].shape[2] == kernel_size
    out = []
    for image in x.flatten(2):
        query = project(p, "proj_q", image)
        places, samples = [], []
        for own, read in zip(query.split(group_width), image.split(group_width), strict=True):
            made = seen(own, height, width, p, "conv_offset.0").reshape(-1, height, width)[:, ::stride, ::stride]
            made = gelu(layer_norm(p, "conv_offset.1.norm", made.flatten(1)))
            offsets = p["conv_offset.3.weight"][:, :, 0, 0] @ made  # (y, x)
            centre = [
                [2 * (i + 0.5) / last[2] - 1, 2 * (j + 0.5) / last[3] - 1] for i in range(rows) for j in range(columns)
            ]
            middles = torch.tensor(centre, dtype=x.dtype).T
            if offset_range < 0:
                place = (middles + offsets).clamp(-1, 1)
            else:
                steps = torch.tensor([[1 / last[2]], [1 / last[3]]], dtype=x.dtype)
                place = middles + torch.tanh(offsets) * offset_range * steps
            places.append(place)
            cells = read.reshape(-1, height, width)
            samples.append(
                torch.stack(
                    [between(cells, (y + 1) / 2 * (height - 1), (x_ + 1) / 2 * (width - 1)) for y, x_ in place.T], 1
                )
            )
        sampled = torch.cat(samples)
        maps = [
            each.split(head_width) for each in (query, project(p, "proj_k", sampled), project(p, "proj_v", sampled))
        ]
        context = []
        for head, (q, k, v) in enumerate(zip(*maps, strict=True)):
            table, place = p["rpe_table"][head : head + 1], places[head * head_width // group_width]
            columns_ = []
            for number in range(height * width):
                row, column = divmod(number, width)
                apart = [2 * row / last[0] - 1, 2 * column / last[1] - 1]
                bias = [
                    between(
                        table, *(((own - far) / 2 + 1) * (table_size - 1) for own, far in zip(apart, each, strict=True))
                    )
                    for each in place.T
                ]
                columns_.append(v @ soft(k.T @ q[:, number] / math.sqrt(head_width) + torch.cat(bias)))
            context.append(torch.stack(columns_, dim=1))
        out.append(project(p, "proj_out", torch.cat(context)))
    return joined(out, x)


REFERENCES: dict[str, Reference] = {each.__name__: each for each in (lska, lsk, caa, ela, triplet, shsa, dat)}
