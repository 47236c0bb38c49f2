"""Blocks of the linear-time field once more, from their equations, as a yardstick for the tests: plain and slow.

The functions are called as those of `reference_field`.
"""

import math

import torch
from reference_attention import Named, attend, layer_norm, normalise, project, sigmoid, soft, window
from reference_field import Reference, joined
from torch import Tensor


def gelu(values: Tensor) -> Tensor:
    return values * (1 + torch.erf(values / math.sqrt(2))) / 2


def seen(image: Tensor, height: int, width: int, p: Named, name: str, dilation: int = 1) -> Tensor:
    """A depthwise convolution of [C, n] whose kernel may be a strip."""
    weight = p[f"{name}.weight"]
    side = max(weight.shape[2:])
    square = torch.zeros(weight.shape[0], 1, side, side, dtype=weight.dtype)
    top, left = ((side - size) // 2 for size in weight.shape[2:])
    square[:, :, top : top + weight.shape[2], left : left + weight.shape[3]] = weight
    return window(image, height, width, square, p.get(f"{name}.bias"), dilation)


def sra(p: Named, x: Tensor, training: bool, heads: int = 8, reduction: int = 4, qkv_bias: bool = True) -> Tensor:
    height, width = x.shape[2:]
    out = []
    for image in x.flatten(2):
        cells = image
        if reduction > 1:
            cells = layer_norm(p, "norm", patches(image, height, width, reduction, p["sr.weight"], p["sr.bias"]))
        key, value = project(p, "kv", cells).chunk(2)
        parts = zip(*(each.chunk(heads) for each in (project(p, "q", image), key, value)), strict=True)
        context = torch.cat([attend(q, k, v, (image.shape[0] // heads) ** -0.5) for q, k, v in parts])
        out.append(project(p, "proj", context))
    return joined(out, x)


def patches(image: Tensor, height: int, width: int, size: int, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution of [C, n] over patches side by side, those at the edges filled with zeros: [C', m]."""
    cells = image.reshape(-1, height, width)
    columns = []
    for top in range(0, height, size):
        for left in range(0, width, size):
            patch = cells[:, top : top + size, left : left + size]
            kernel = weight[:, :, : patch.shape[1], : patch.shape[2]]
            columns.append(torch.einsum("ocij,cij->o", kernel, patch) + bias)
    return torch.stack(columns, dim=1)


def between_channels(p: Named, maps: Tensor, heads: int) -> Tensor:
    """Attention between the channels of [3 C, n]: [C, n]."""
    query, key, value = (part.chunk(heads) for part in maps.chunk(3))
    context = []
    for head in range(heads):
        unit = [[row / row.norm().clamp(min=1e-12) for row in part[head]] for part in (query, key)]
        for own in unit[0]:
            scores = torch.stack([own @ other for other in unit[1]]) * p["temperature"][head, 0, 0]
            context.append(soft(scores) @ value[head])
    return torch.stack(context)


def mdta(p: Named, x: Tensor, training: bool, heads: int = 8, bias: bool = False) -> Tensor:
    height, width = x.shape[2:]
    out = []
    for image in x.flatten(2):
        maps = seen(project(p, "qkv", image), height, width, p, "qkv_dwconv")
        out.append(project(p, "project_out", between_channels(p, maps, heads)))
    return joined(out, x)


def xca(p: Named, x: Tensor, training: bool, heads: int = 8, qkv_bias: bool = True) -> Tensor:
    return joined([project(p, "proj", between_channels(p, project(p, "qkv", i), heads)) for i in x.flatten(2)], x)


def lite_mla(p: Named, x: Tensor, training: bool, dim: int = 32, scale: int = 5) -> Tensor:
    height, width = x.shape[2:]
    contexts = []
    for image in x.flatten(2):
        maps = project(p, "qkv.conv", image)
        local = seen(maps, height, width, p, "aggreg.0.0").split(dim)
        mixed = [w[:, :, 0, 0] @ part for w, part in zip(p["aggreg.0.1.weight"].split(dim), local, strict=True)]
        context = []
        for head in torch.cat([maps, *mixed]).split(3 * dim):
            query, key, value = head.split(dim)
            query, key = query.clamp(min=0), key.clamp(min=0)
            columns = [value @ (key.T @ q) / ((key.T @ q).sum() + 1e-15) for q in query.T]
            context.append(torch.stack(columns, dim=1))
        contexts.append(project(p, "proj.conv", torch.cat(context)))
    return joined(normalise(p, "proj.norm", contexts, training), x)


def visual_attention(p: Named, x: Tensor, strips: bool) -> Tensor:
    height, width = x.shape[2:]
    unit, out = "spatial_gating_unit", []
    for image in x.flatten(2):
        features = gelu(project(p, "proj_1", image))
        near = seen(features, height, width, p, f"{unit}.conv0")
        if strips:
            far = [
                seen(seen(near, height, width, p, f"{unit}.conv{i}_1"), height, width, p, f"{unit}.conv{i}_2")
                for i in range(3)
            ]
            weights = project(p, f"{unit}.conv3", near + far[0] + far[1] + far[2])
        else:
            weights = project(p, f"{unit}.conv1", seen(near, height, width, p, f"{unit}.conv_spatial", 3))
        out.append(image + project(p, "proj_2", weights * features))
    return joined(out, x)


def msca(p: Named, x: Tensor, training: bool) -> Tensor:
    return visual_attention(p, x, strips=True)


def lka(p: Named, x: Tensor, training: bool) -> Tensor:
    return visual_attention(p, x, strips=False)


def focal(p: Named, x: Tensor, training: bool, focal_level: int = 2, focal_window: int = 3) -> Tensor:
    height, width = x.shape[2:]
    channels = x.shape[1]
    out = []
    for image in x.flatten(2):
        query, context, gates = project(p, "f", image).split([channels, channels, focal_level + 1])
        total = torch.zeros_like(image)
        for level in range(focal_level):
            assert p[f"focal_layers.{level}.0.weight"].shape[2] == focal_window + 2 * level
            context = gelu(seen(context, height, width, p, f"focal_layers.{level}.0"))
            total = total + context * gates[level]
        total = total + torch.outer(gelu(context.mean(1)), gates[focal_level])
        out.append(project(p, "proj", query * project(p, "h", total)))
    return joined(out, x)


def cbam(p: Named, x: Tensor, training: bool, reduction: int = 16) -> Tensor:
    height, width = x.shape[2:]

    def scores(values: Tensor) -> Tensor:
        hidden = project(p, "ChannelGate.mlp.1", values[:, None]).clamp(min=0)
        return project(p, "ChannelGate.mlp.3", hidden)

    images, planes = [], []
    for image in x.flatten(2):
        image = image * sigmoid(scores(image.mean(1)) + scores(image.amax(1)))
        summary = torch.stack([image.amax(0), image.mean(0)])
        images.append(image)
        planes.append(window(summary, height, width, p["SpatialGate.spatial.conv.weight"], None))
    planes = normalise(p, "SpatialGate.spatial.bn", planes, training)
    return joined([image * sigmoid(plane) for image, plane in zip(images, planes, strict=True)], x)


def coord(p: Named, x: Tensor, training: bool, reduction: int = 32) -> Tensor:
    height = x.shape[2]
    means = [project(p, "conv1", torch.cat([image.mean(2), image.mean(1)], dim=1)) for image in x]
    out = []
    for image, mean in zip(x, normalise(p, "bn1", means, training), strict=True):
        hidden = mean * (mean + 3).clamp(min=0, max=6) / 6
        rows = sigmoid(project(p, "conv_h", hidden[:, :height]))
        columns = sigmoid(project(p, "conv_w", hidden[:, height:]))
        out.append(image * rows[:, :, None] * columns[:, None, :])
    return torch.stack(out)


REFERENCES: dict[str, Reference] = {
    each.__name__: each for each in (sra, mdta, xca, lite_mla, msca, lka, focal, cbam, coord)
}
