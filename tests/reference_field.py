"""The eighteen modules of the field once more, from their equations, as a yardstick for the tests: plain and slow.

Every function takes `p`, the module's parameters and buffers by name, the input [B, C, H, W], whether batch
normalisation uses the statistics of the batch, and the module's hyper-parameters. Images are lists of [C, n].
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from reference_attention import Named, attend, cells, layer_norm, normalise, project, sigmoid, silu, soft, window
from torch import Tensor

Reference = Callable[..., Tensor]


def joined(images: list[Tensor], x: Tensor) -> Tensor:
    """Images [C', n] as [B, C', H, W]."""
    return torch.stack([image.reshape(-1, *x.shape[2:]) for image in images])


def norm_relu(p: Named, name: str, images: list[Tensor], training: bool) -> list[Tensor]:
    return [image.clamp(min=0) for image in normalise(p, name, images, training)]


def mhsa(p: Named, x: Tensor, training: bool, heads: int = 8) -> Tensor:
    out = []
    for image in x.flatten(2):
        parts = [part.chunk(heads) for part in project(p, "project", image).chunk(3)]
        width = image.shape[0] // heads
        context = torch.cat([attend(q, k, v, width**-0.5) for q, k, v in zip(*parts, strict=True)])
        out.append(image + project(p, "output", context))
    return joined(out, x)


def non_local(
    p: Named,
    x: Tensor,
    training: bool,
    mode: str = "embedded_gaussian",
    reduction: int = 2,
    sub_sample: bool = False,
    scale: bool = True,
) -> Tensor:
    height, width = x.shape[2:]

    def sampled(image: Tensor) -> Tensor:
        if not sub_sample:
            return image
        maps = image.reshape(-1, height, width)
        rows, columns = range(0, height, 2), range(0, width, 2)
        return torch.stack([maps[:, i : i + 2, j : j + 2].amax((1, 2)) for i in rows for j in columns], dim=1)

    contexts = []
    for image in x.flatten(2):
        query = image if mode == "gaussian" else project(p, "query", image)
        key = sampled(image if mode == "gaussian" else project(p, "key", image))
        value = sampled(project(p, "value", image))
        count = key.shape[1]
        if mode == "dot_product":
            context = value @ (key.T @ query) / count
        elif mode == "concatenation":
            vector = p["weight"].reshape(-1)
            pairs = [
                [vector @ torch.cat([query[:, i], key[:, j]]) for i in range(query.shape[1])] for j in range(count)
            ]
            affinity = torch.stack([torch.stack(row) for row in pairs]).clamp(min=0)  # [m, n]
            context = value @ affinity / count
        else:
            factor = query.shape[0] ** -0.5 if mode == "embedded_gaussian" and scale else 1.0
            context = attend(query, key, value, factor)
        contexts.append(project(p, "output", context))
    normal = normalise(p, "norm", contexts, training)
    return joined([image + each for image, each in zip(x.flatten(2), normal, strict=True)], x)


def criss_cross(p: Named, x: Tensor, training: bool, recurrence: int = 2, reduction: int = 8) -> Tensor:
    height, width = x.shape[2:]
    images = list(x.flatten(2))
    for _ in range(recurrence):
        after = []
        for image in images:
            query, key, value = (project(p, name, image) for name in ("query", "key", "value"))
            columns = []
            for i in range(height):
                for j in range(width):
                    seen = [r * width + j for r in range(height) if r != i] + [i * width + c for c in range(width)]
                    weights = soft(key[:, seen].T @ query[:, i * width + j])
                    columns.append(value[:, seen] @ weights)
            after.append(p["gamma"] * torch.stack(columns, dim=1) + image)
        images = after
    return joined(images, x)


def gc(p: Named, x: Tensor, training: bool, pooling: str = "att", fusion: str = "add", reduction: int = 16) -> Tensor:
    def transform(name: str, context: Tensor) -> Tensor:
        hidden = layer_norm(p, f"{name}.1", project(p, f"{name}.0", context))
        return project(p, f"{name}.3", hidden.clamp(min=0))

    out = []
    for image in x.flatten(2):
        weights = (
            soft(project(p, "mask", image)[0])
            if pooling == "att"
            else torch.full((image.shape[1],), 1 / image.shape[1], dtype=image.dtype)
        )
        context = (image @ weights)[:, None]
        y = image
        if fusion in ("mul", "both"):
            y = y * sigmoid(transform("multiply", context))
        if fusion in ("add", "both"):
            y = y + transform("add", context)
        out.append(y)
    return joined(out, x)


def ema(
    p: Named, x: Tensor, training: bool, bases: int = 64, steps: int = 3, momentum: float = 0.9, gradient: str = "none"
) -> Tensor:
    contexts = []
    for image in x.flatten(2):
        basis, weights = em_steps(p["bases"][0], project(p, "input", image), steps)
        context = (basis @ weights.T).clamp(min=0)
        contexts.append(project(p, "output", context if gradient == "unrolled" else context.detach()))
    normal = normalise(p, "norm", contexts, training)
    return joined([(each + image).clamp(min=0) for image, each in zip(x.flatten(2), normal, strict=True)], x)


def em_steps(basis: Tensor, features: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The bases [C, k] after EM steps on features [C, n], and the positions' shares in them [n, k]."""
    weights = features
    for _ in range(steps):
        weights = torch.stack([soft(basis.T @ features[:, i]) for i in range(features.shape[1])])
        basis = features @ (weights / (1e-6 + weights.sum(0)))
        basis = basis / (1e-6 + torch.sqrt((basis**2).sum(0)))
    return basis, weights


def few_norm_relu(p: Named, name: str, images: list[Tensor], training: bool) -> list[Tensor]:
    """With one value a channel, the running statistics serve in training, too."""
    return norm_relu(p, name, images, training and sum(image.shape[1] for image in images) > 1)


def enlarged(image: Tensor, grid: int, height: int, width: int) -> Tensor:
    """Bilinear, corners aligned: [w, grid * grid] to [w, n]."""
    cells = image.reshape(-1, grid, grid)

    def place(i: int, size: int) -> tuple[int, int, float]:
        at = i * (grid - 1) / (size - 1) if size > 1 else 0.0
        low = min(int(at), grid - 1)
        return low, min(low + 1, grid - 1), at - low

    columns = []
    for i in range(height):
        top, bottom, down = place(i, height)
        for j in range(width):
            left, right, across = place(j, width)
            upper = cells[:, top, left] * (1 - across) + cells[:, top, right] * across
            lower = cells[:, bottom, left] * (1 - across) + cells[:, bottom, right] * across
            columns.append(upper * (1 - down) + lower * down)
    return torch.stack(columns, dim=1)


def ppm(p: Named, x: Tensor, training: bool, fuse: bool = True) -> Tensor:
    height, width = x.shape[2:]
    images = list(x.flatten(2))
    parts = [images]
    for number, grid in enumerate((1, 2, 3, 6)):
        small = [project(p, f"branches.{number}.0", cells(image.reshape(-1, height, width), grid)) for image in images]
        small = few_norm_relu(p, f"branches.{number}.1", small, training)
        parts.append([enlarged(each, grid, height, width) for each in small])
    stacked = [torch.cat(each) for each in zip(*parts, strict=True)]
    if fuse:
        stacked = [window(each, height, width, p["fuse.0.weight"], None) for each in stacked]
        stacked = norm_relu(p, "fuse.1", stacked, training)
    return joined(stacked, x)


def aspp(p: Named, x: Tensor, training: bool, width: int = 256, rate: int = 12) -> Tensor:
    height, columns = x.shape[2:]
    images = list(x.flatten(2))
    parts = [norm_relu(p, "point.1", [project(p, "point.0", image) for image in images], training)]
    for number in range(3):
        weight = p[f"windows.{number}.0.weight"]
        seen = [window(image, height, columns, weight, None, (number + 1) * rate) for image in images]
        parts.append(norm_relu(p, f"windows.{number}.1", seen, training))
    means = [project(p, "image.0", image.mean(1, keepdim=True)) for image in images]
    means = few_norm_relu(p, "image.1", means, training)
    parts.append([mean.expand(-1, height * columns) for mean in means])
    stacked = [project(p, "output.0", torch.cat(each)) for each in zip(*parts, strict=True)]
    return joined(norm_relu(p, "output.1", stacked, training), x)


def apnb(p: Named, x: Tensor, training: bool, reduction: int = 2) -> Tensor:
    height, width = x.shape[2:]
    images = list(x.flatten(2))
    features = norm_relu(p, "features.1", [project(p, "features.0", image) for image in images], training)
    stacked = []
    for image, feature in zip(images, features, strict=True):
        value = project(p, "value", image)
        keys, values = (
            torch.cat([cells(each.reshape(-1, height, width), grid) for grid in (1, 3, 6, 8)], dim=1)
            for each in (feature, value)
        )
        context = project(p, "context", attend(feature, keys, values, feature.shape[0] ** -0.5))
        stacked.append(project(p, "output.0", torch.cat([context, image])))
    return joined(norm_relu(p, "output.1", stacked, training), x)


def isa(p: Named, x: Tensor, training: bool, block: int = 8, reduction: int = 2) -> Tensor:
    height, width = x.shape[2:]
    tall, wide = -(-height // block) * block, -(-width // block) * block
    top, left = (tall - height) // 2, (wide - width) // 2

    def attention(name: str, images: list[Tensor], groups: list[list[int]]) -> list[Tensor]:
        def twice(part: str) -> list[Tensor]:
            first = norm_relu(p, f"{name}.{part}.1", [project(p, f"{name}.{part}.0", i) for i in images], training)
            return norm_relu(p, f"{name}.{part}.4", [project(p, f"{name}.{part}.3", i) for i in first], training)

        queries, keys = twice("query"), twice("key")
        contexts = []
        for image, query, key in zip(images, queries, keys, strict=True):
            value = project(p, f"{name}.value", image)
            context = torch.zeros_like(value)
            for group in groups:
                seen = attend(query[:, group], key[:, group], value[:, group], query.shape[0] ** -0.5)
                context = context.index_copy(1, torch.tensor(group), seen)
            contexts.append(project(p, f"{name}.output.0", context))
        return norm_relu(p, f"{name}.output.1", contexts, training)

    padded = torch.zeros(x.shape[0], x.shape[1], tall, wide, dtype=x.dtype)
    padded[:, :, top : top + height, left : left + width] = x
    apart = [
        [i * wide + j for i in range(a, tall, block) for j in range(b, wide, block)]
        for a in range(block)
        for b in range(block)
    ]
    inside = [
        [i * wide + j for i in range(a, a + block) for j in range(b, b + block)]
        for a in range(0, tall, block)
        for b in range(0, wide, block)
    ]
    images = attention("short", attention("long", list(padded.flatten(2)), apart), inside)
    cropped = [image.reshape(-1, tall, wide)[:, top : top + height, left : left + width].flatten(1) for image in images]
    stacked = [project(p, "output.0", torch.cat(each)) for each in zip(x.flatten(2), cropped, strict=True)]
    return joined(norm_relu(p, "output.1", stacked, training), x)


def efficient(p: Named, x: Tensor, training: bool, reduction: int = 2, heads: int = 1) -> Tensor:
    out = []
    for image in x.flatten(2):
        parts = [project(p, name, image).chunk(heads) for name in ("key", "query", "value")]
        context = []
        for key, query, value in zip(*parts, strict=True):
            weights = torch.stack([soft(row) for row in key])
            memory = weights @ value.T
            context.append(torch.stack([memory.T @ soft(query[:, i]) for i in range(query.shape[1])], dim=1))
        out.append(image + project(p, "output", torch.cat(context)))
    return joined(out, x)


def external(p: Named, x: Tensor, training: bool, memory: int = 64) -> Tensor:
    contexts = []
    for image in x.flatten(2):
        weights = torch.stack([soft(row) for row in p["keys"] @ project(p, "input", image)])
        weights = weights / (1e-9 + weights.sum(0))
        contexts.append(project(p, "output", p["values"] @ weights))
    normal = normalise(p, "norm", contexts, training)
    return joined([(each + image).clamp(min=0) for image, each in zip(x.flatten(2), normal, strict=True)], x)


def spectral(p: Named, x: Tensor, training: bool) -> Tensor:
    height, width = x.shape[2:]
    bins = width // 2 + 1
    images = norm_relu(p, "input.1", [project(p, "input.0", image) for image in x.flatten(2)], training)

    def waves(size: int) -> Tensor:
        steps = torch.outer(torch.arange(size), torch.arange(size)).to(x.dtype) * (2 * math.pi / size)
        return torch.complex(steps.cos(), -steps.sin()) / math.sqrt(size)

    down, across = waves(height), waves(width)
    spectra = []
    for image in images:
        cells = image.reshape(-1, height, width).to(x.dtype.to_complex())
        spectrum = (down @ cells @ across)[:, :, :bins]
        parts = torch.stack([spectrum.real, spectrum.imag], dim=1).flatten(0, 1).flatten(1)
        spectra.append(project(p, "bins.0", parts))
    out = []
    for image, parts in zip(images, norm_relu(p, "bins.1", spectra, training), strict=True):
        pairs = parts.reshape(-1, 2, height, bins)
        rows = down.conj() @ torch.complex(pairs[:, 0], pairs[:, 1])
        total = torch.zeros(rows.shape[0], height, width, dtype=x.dtype)
        for k in range(bins):
            alone = k == 0 or 2 * k == width
            wave = across.conj()[k]  # [W]
            column = torch.complex(rows[:, :, k].real, rows[:, :, k].imag * (0.0 if alone else 1.0))
            total = total + (1 if alone else 2) * (column[:, :, None] * wave).real
        out.append(project(p, "output", image + total.flatten(1)))
    return joined(out, x)


def agent(p: Named, x: Tensor, training: bool, heads: int = 8, pool: int = 7, qkv_bias: bool = True) -> Tensor:
    height, width = x.shape[2:]
    out = []
    for image in x.flatten(2):
        query, key, value = (project(p, name, image) for name in ("query", "key", "value"))
        agents = cells(query.reshape(-1, height, width), pool)
        scale = (image.shape[0] // heads) ** -0.5
        context = []
        for q, a, k, v in zip(*(each.chunk(heads) for each in (query, agents, key, value)), strict=True):
            context.append(attend(q, a, attend(a, k, v, scale), scale))
        detail = window(value, height, width, p["detail.weight"], p["detail.bias"])
        out.append(project(p, "output", torch.cat(context) + detail))
    return joined(out, x)


def rotated(features: Tensor, width: int, frequencies: list[float]) -> Tensor:
    """Channels [2P, n] turned in pairs: the first half of the pairs by the row, the second by the column."""
    out = features.clone()
    half = len(frequencies)
    for position in range(features.shape[1]):
        row, column = divmod(position, width)
        for pair in range(2 * half):
            angle = row * frequencies[pair] if pair < half else column * frequencies[pair - half]
            even, odd = features[2 * pair, position], features[2 * pair + 1, position]
            out[2 * pair, position] = even * math.cos(angle) - odd * math.sin(angle)
            out[2 * pair + 1, position] = even * math.sin(angle) + odd * math.cos(angle)
    return out


def elu_plus_one(values: Tensor) -> Tensor:
    return torch.where(values > 0, values + 1, torch.exp(values.clamp(max=0)))


def mila(p: Named, x: Tensor, training: bool, heads: int = 16) -> Tensor:
    height, width = x.shape[2:]
    count = x.shape[1] // 4
    frequencies = [10000.0 ** (-j / count) for j in range(count)]
    out = []
    for image in x.flatten(2):
        gate = silu(project(p, "gate", image))
        value = silu(window(project(p, "input", image), height, width, p["local.weight"], p["local.bias"]))
        query, key = (elu_plus_one(project(p, name, value)) for name in ("query", "key"))
        turned = [rotated(each, width, frequencies) for each in (query, key)]
        context = []
        for q, k, v, tq, tk in zip(*(each.chunk(heads) for each in (query, key, value, *turned)), strict=True):
            memory = tk @ v.T / v.shape[1]
            context.append((memory.T @ tq) / (k.mean(1) @ q + 1e-6))
        detail = window(value, height, width, p["detail.weight"], p["detail.bias"])
        out.append(project(p, "output", (torch.cat(context) + detail) * gate))
    return joined(out, x)


def _gated(p: Named, x: Tensor, heads: int, weigh: Callable[..., Tensor]) -> Tensor:
    height, width = x.shape[2:]
    count = x.shape[1] // heads // 4
    frequencies = [10000.0 ** (-j / (count - 1)) if count > 1 else 1.0 for j in range(count)]
    out = []
    for image in x.flatten(2):
        query, key, value, gate = project(p, "project", image).chunk(4)
        parts = [elu_plus_one(query).chunk(heads), elu_plus_one(key).chunk(heads), value.chunk(heads)]
        context = torch.cat([weigh(q, k, v, width, frequencies) for q, k, v in zip(*parts, strict=True)])
        detail = window(value, height, width, p["detail.weight"], p["detail.bias"])
        out.append(project(p, "output", (context + detail) * gate))
    return joined(out, x)


def rala(p: Named, x: Tensor, training: bool, heads: int = 8) -> Tensor:
    def weigh(q: Tensor, k: Tensor, v: Tensor, width: int, frequencies: list[float]) -> Tensor:
        count = k.shape[1]
        k = k * (count * soft(q.mean(1) @ k / math.sqrt(k.shape[0])))
        memory = rotated(k, width, frequencies) @ v.T / count
        return (memory.T @ rotated(q, width, frequencies)) / (k.mean(1) @ q + 1e-6)

    return _gated(p, x, heads, weigh)


def mala(p: Named, x: Tensor, training: bool, heads: int = 8) -> Tensor:
    def weigh(q: Tensor, k: Tensor, v: Tensor, width: int, frequencies: list[float]) -> Tensor:
        scale = k.shape[0] ** -0.5
        z = scale * (k.mean(1) @ q)
        memory = rotated(k, width, frequencies) @ v.T * (scale / k.shape[1])
        out: Tensor = (memory.T @ rotated(q, width, frequencies)) * (1 + 1 / (z + 1e-6)) - torch.outer(v.mean(1), z)
        return out

    return _gated(p, x, heads, weigh)


def polaformer(
    p: Named, x: Tensor, training: bool, heads: int = 8, alpha: int = 4, kernel: int = 5, qkv_bias: bool = True
) -> Tensor:
    height, width = x.shape[2:]
    scale = torch.log1p(torch.exp(p["scale"]))[:, None]
    powers = 1 + alpha * sigmoid(p["power"])
    out = []
    for image in x.flatten(2):
        query, key = (project(p, name, image) / scale for name in ("query", "key"))
        value = project(p, "value", image)
        context = []
        for head, (q, k, v) in enumerate(zip(*(each.chunk(heads) for each in (query, key, value)), strict=True)):
            power = powers[head][:, None]
            up, down = q.clamp(min=0) ** power, (-q).clamp(min=0) ** power
            kk = torch.cat([k.clamp(min=0) ** power, (-k).clamp(min=0) ** power])
            parts = []
            for features, part in zip((torch.cat([up, down]), torch.cat([down, up])), v.chunk(2), strict=True):
                parts.append(((kk @ part.T / part.shape[1]).T @ features) / (kk.mean(1) @ features + 1e-6))
            detail = window(v, height, width, p["detail.weight"], p["detail.bias"])
            context.append(torch.cat(parts) + detail)
        out.append(project(p, "output", torch.cat(context) * project(p, "gate", image)))
    return joined(out, x)


def se(p: Named, x: Tensor, training: bool, reduction: int = 16, bias: bool = True) -> Tensor:
    out = []
    for image in x.flatten(2):
        hidden = project(p, "squeeze", image.mean(1, keepdim=True)).clamp(min=0)
        out.append(image * sigmoid(project(p, "excite", hidden)))
    return joined(out, x)


REFERENCES: dict[str, Reference] = {
    each.__name__: each
    for each in (
        *(mhsa, non_local, criss_cross, gc, ema, ppm, aspp, apnb, isa, efficient, external, spectral, agent),
        *(mila, rala, mala, polaformer, se),
    )
}
Hparams = Mapping[str, Any]
