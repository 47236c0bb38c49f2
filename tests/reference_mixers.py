"""Token mixers that networks are compared with, once more, from their equations: plain and slow.

The functions are called as those of `reference_field`.
"""

import math
from collections.abc import Callable

import torch
from reference_attention import Named, attend, normalise, project, sigmoid, silu, soft, window
from reference_blocks import gelu, seen
from reference_field import Reference, joined
from reference_scans import softplus
from torch import Tensor


def pool(p: Named, x: Tensor, training: bool, pool_size: int = 3) -> Tensor:
    height, width = x.shape[2:]
    out, reach = torch.zeros_like(x), pool_size // 2
    for row in range(height):
        for column in range(width):
            rows, columns = (slice(max(place - reach, 0), place + reach + 1) for place in (row, column))
            out[:, :, row, column] = x[:, :, rows, columns].mean((2, 3)) - x[:, :, row, column]
    return out


def dwconv(p: Named, x: Tensor, training: bool, kernel_size: int = 7) -> Tensor:
    assert p["dwconv.weight"].shape[2] == kernel_size
    height, width = x.shape[2:]
    return joined([seen(image, height, width, p, "dwconv") for image in x.flatten(2)], x)


def gated_cnn(
    p: Named, x: Tensor, training: bool, expansion_ratio: float = 8 / 3, kernel_size: int = 7, conv_ratio: float = 1.0
) -> Tensor:
    inner, convolved = math.floor(expansion_ratio * x.shape[1]), math.floor(conv_ratio * x.shape[1])
    assert p["conv.weight"].shape == (convolved, 1, kernel_size, kernel_size)
    out = []
    for image in x.flatten(2):
        gate, values = project(p, "fc1", image).split(inner)
        kept, last = values.split([inner - convolved, convolved])
        values = torch.cat([kept, seen(last, x.shape[2], x.shape[3], p, "conv")])
        out.append(project(p, "fc2", gelu(gate) * values))
    return joined(out, x)


def eca(p: Named, x: Tensor, training: bool, kernel_size: int = 0) -> Tensor:
    weight = p["conv.weight"][0, 0]
    assert kernel_size in (0, len(weight))
    out = []
    for image in x.flatten(2):
        mean, reach = image.mean(1), len(weight) // 2
        scores = [
            sum(weight[j] * mean[c + j - reach] for j in range(len(weight)) if 0 <= c + j - reach < len(mean))
            for c in range(len(mean))
        ]
        out.append(image * sigmoid(torch.stack([torch.as_tensor(score) for score in scores]))[:, None])
    return joined(out, x)


def simam(p: Named, x: Tensor, training: bool, e_lambda: float = 1e-4) -> Tensor:
    out = []
    for image in x.flatten(2):
        squares = (image - image.mean(1, keepdim=True)) ** 2
        variance = squares.sum(1, keepdim=True) / max(image.shape[1] - 1, 1)
        out.append(image * sigmoid(squares / (4 * (variance + e_lambda)) + 0.5))
    return joined(out, x)


def filled(image: Tensor, height: int, width: int) -> Tensor:
    """An image [C, h, w] with zeros below and at the right, [C, height, width]."""
    out = torch.zeros(image.shape[0], height, width, dtype=image.dtype)
    out[:, : image.shape[1], : image.shape[2]] = image
    return out


def among(p: Named, image: Tensor, groups: list[list[tuple[int, int]]], bias: Callable[..., Tensor], d: int) -> Tensor:
    """Attention of [C, h, w] within groups of positions; `bias` of a head and of two places of a group's list."""
    out = torch.zeros_like(image)
    for group in groups:
        tokens = torch.stack([image[:, row, column] for row, column in group], dim=1)
        heads = zip(*(each.split(d) for each in project(p, "qkv", tokens).chunk(3)), strict=True)
        context = []
        for head, (query, key, value) in enumerate(heads):
            added = torch.stack([torch.stack([bias(head, q, k) for k in group]) for q in group])
            logits = query.T @ key / math.sqrt(d) + added
            context.append(torch.stack([value @ soft(row) for row in logits], dim=1))
        mixed = project(p, "proj", torch.cat(context))
        for place, (row, column) in enumerate(group):
            out[:, row, column] = mixed[:, place]
    return out


def swin(
    p: Named, x: Tensor, training: bool, head_width: int = 32, window_size: int = 7, shift_size: int = 3
) -> Tensor:
    size, (height, width) = window_size, x.shape[2:]
    tall, wide = -(-height // size) * size, -(-width // size) * size
    down, across = (shift_size if side > size else 0 for side in (tall, wide))

    def region(place: int, side: int, shift: int) -> int:
        """Of a row before the shift: which of the strips it lies in, at the place that the shift brings it to."""
        moved = (place - shift) % side
        return 0 if not shift or moved < side - size else 1 if moved < side - shift else 2

    def bias(head: int, q: tuple[int, int], k: tuple[int, int]) -> Tensor:
        moves = ((0, down, tall), (1, across, wide))
        rows, columns = ((q[axis] - shift) % side - (k[axis] - shift) % side for axis, shift, side in moves)
        place = (rows + size - 1) * (2 * size - 1) + columns + size - 1
        apart = region(q[0], tall, down) != region(k[0], tall, down) or region(q[1], wide, across) != region(
            k[1], wide, across
        )
        return p["relative_position_bias_table"][place, head] - (100.0 if apart else 0.0)

    groups = [
        [((top + i + down) % tall, (left + j + across) % wide) for i in range(size) for j in range(size)]
        for top in range(0, tall, size)
        for left in range(0, wide, size)
    ]
    images = [among(p, filled(image, tall, wide), groups, bias, head_width) for image in x]
    return torch.stack(images)[:, :, :height, :width]


def grid(
    p: Named, x: Tensor, training: bool, head_width: int = 32, grid_size: int = 7, partition: str = "grid"
) -> Tensor:
    size, (height, width) = grid_size, x.shape[2:]
    tall, wide = -(-height // size) * size, -(-width // size) * size
    down, across = (tall // size, wide // size) if partition == "grid" else (1, 1)
    corners = [(u, v) for u in range(tall // size) for v in range(wide // size)]
    if partition == "block":
        corners = [(u * size, v * size) for u, v in corners]

    def bias(head: int, q: tuple[int, int], k: tuple[int, int]) -> Tensor:
        rows, columns = (k[0] - q[0]) // down, (k[1] - q[1]) // across
        return p["rel_pos.relative_position_bias_table"][head, rows + size - 1, columns + size - 1]

    groups = [[(u + i * down, v + j * across) for i in range(size) for j in range(size)] for u, v in corners]
    images = [among(p, filled(image, tall, wide), groups, bias, head_width) for image in x]
    return torch.stack(images)[:, :, :height, :width]


def neighborhood(
    p: Named, x: Tensor, training: bool, head_width: int = 32, kernel_size: int = 7, dilation: int = 1
) -> Tensor:
    height, width = x.shape[2:]
    tall, wide = max(height, kernel_size * dilation), max(width, kernel_size * dilation)

    def keys(place: int, side: int) -> list[int]:
        members = [each for each in range(side) if each % dilation == place % dilation]
        start = min(max(members.index(place) - kernel_size // 2, 0), len(members) - kernel_size)
        return members[start : start + kernel_size]

    out = []
    for image in x:
        tokens = project(p, "qkv", filled(image, tall, wide).flatten(1)).reshape(-1, tall, wide)
        contexts = torch.zeros_like(image)
        for row in range(height):
            for column in range(width):
                seen_rows, seen_columns = keys(row, tall), keys(column, wide)
                places = [(r, c) for r in seen_rows for c in seen_columns]
                own = [part.split(head_width) for part in tokens.chunk(3)]
                context = []
                for head, (query, key, value) in enumerate(zip(*own, strict=True)):
                    steps = [((r - row) // dilation, (c - column) // dilation) for r, c in places]
                    bias = torch.stack([p["rpb"][head, r + kernel_size - 1, c + kernel_size - 1] for r, c in steps])
                    seen_keys = torch.stack([key[:, r, c] for r, c in places])
                    weights = soft(seen_keys @ query[:, row, column] / math.sqrt(head_width) + bias)
                    context.append(torch.stack([value[:, r, c] for r, c in places], dim=1) @ weights)
                contexts[:, row, column] = torch.cat(context)
        out.append(project(p, "proj", contexts.flatten(1)))
    return joined(out, x)


def area(p: Named, x: Tensor, training: bool, head_width: int = 32, area: int = 4, kernel_size: int = 7) -> Tensor:
    height, width = x.shape[2:]
    assert p["pe.conv.weight"].shape[2] == kernel_size

    def normed(name: str, images: list[Tensor]) -> list[Tensor]:
        return normalise(p, f"{name}.bn", images, training, eps=1e-3)

    maps = normed("qkv", [project(p, "qkv.conv", image) for image in x.flatten(2)])
    contexts, values = [], []
    for image in maps:
        heads = [head.split(head_width) for head in image.split(3 * head_width)]
        values.append(torch.cat([value for _, _, value in heads]))
        length = -(-image.shape[1] // area)
        runs = [slice(start, start + length) for start in range(0, image.shape[1], length)]
        attended = [
            torch.cat([attend(q[:, run], k[:, run], v[:, run], head_width**-0.5) for run in runs], dim=1)
            for q, k, v in heads
        ]
        contexts.append(torch.cat(attended))
    near = normed("pe", [seen(value, height, width, p, "pe.conv") for value in values])
    mixed = [project(p, "proj.conv", context + local) for context, local in zip(contexts, near, strict=True)]
    return joined(normed("proj", mixed), x)


def deformable(p: Named, x: Tensor, training: bool, heads: int = 8, points: int = 4) -> Tensor:
    height, width = x.shape[2:]
    out = []
    for image in x.flatten(2):
        values = project(p, "value_proj", image).reshape(heads, -1, height, width)
        offsets = project(p, "sampling_offsets", image).reshape(heads, points, 2, -1)
        weights = project(p, "attention_weights", image).reshape(heads, points, -1)
        columns = []
        for place in range(image.shape[1]):
            row, column = divmod(place, width)
            context = []
            for head in range(heads):
                shares = soft(weights[head, :, place])
                read = torch.zeros(values.shape[1], dtype=x.dtype)
                for point in range(points):
                    right, down = offsets[head, point, :, place]
                    read = read + shares[point] * between(values[head], row + down, column + right)
                context.append(read)
            columns.append(torch.cat(context))
        out.append(project(p, "output_proj", torch.stack(columns, dim=1)))
    return joined(out, x)


def between(image: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Bilinear value of [C, h, w] at a place, zero outside."""
    top, left = (int(torch.floor(each.detach())) for each in (row, column))
    total = torch.zeros(image.shape[0], dtype=image.dtype)
    for r, c in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        if 0 <= r < image.shape[1] and 0 <= c < image.shape[2]:
            total = total + image[:, r, c] * (1 - (row - r).abs()) * (1 - (column - c).abs())
    return total


def ttt(p: Named, x: Tensor, training: bool, head_width: int = 32) -> Tensor:
    """By torch's own gradient of the loss, which the module has in closed form."""
    channels, (height, width) = x.shape[1], x.shape[2:]
    out = []
    for image in x.flatten(2):
        parts = project(p, "qkv", image).split([channels] * 3 + [head_width] * 3)
        context = []
        for head in range(channels // head_width):
            query, key, value = (each[head * head_width : (head + 1) * head_width].T for each in parts[:3])
            first, second = p["w1"][0, head], p["w2"][0, head]
            loss = -(((key @ first) * silu(key @ second)) * value).sum(1).mean() / 3
            steps = torch.autograd.grad(loss, (first, second), create_graph=True)
            first, second = (
                weight - step / ((step**2).sum(0, keepdim=True).sqrt() + 1)
                for weight, step in zip((first, second), steps, strict=True)
            )
            context.append(((query @ first) * silu(query @ second)).T)
        taps: Tensor = p["w3"]
        named = {"c.weight": taps}
        loss = -(seen(parts[4], height, width, named, "c") * parts[5]).mean(1).sum() / 3
        (step,) = torch.autograd.grad(loss, taps, create_graph=True)
        length = (step**2).sum((1, 2, 3), keepdim=True).sqrt()
        local = seen(parts[3], height, width, {"c.weight": taps - step / (length + 1)}, "c")
        out.append(project(p, "proj", torch.cat([*context, local])))
    return joined(out, x)


def ssd(
    p: Named,
    x: Tensor,
    training: bool,
    head_width: int = 64,
    d_state: int = 64,
    d_conv: int = 4,
    expand: int = 2,
    chunk_size: int = 64,
    bidirectional: bool = True,
) -> Tensor:
    """Position by position, whatever the chunks."""
    inner = expand * x.shape[1]
    heads, out = inner // head_width, []

    def direction(mixed: Tensor, step: Tensor, end: str) -> Tensor:
        taps = p[f"conv1d{end}.weight"][:, 0]
        padded = torch.cat([torch.zeros(mixed.shape[0], d_conv - 1, dtype=mixed.dtype), mixed], dim=1)
        seen_ = [(padded[:, t : t + d_conv] * taps).sum(1) + p[f"conv1d{end}.bias"] for t in range(mixed.shape[1])]
        value, enter, leave = silu(torch.stack(seen_, dim=1)).split([inner, d_state, d_state])
        step = softplus(step + p[f"dt_bias{end}"][:, None])
        states = torch.zeros(heads, head_width, d_state, dtype=x.dtype)
        read = []
        for t in range(value.shape[1]):
            own = value[:, t].reshape(heads, head_width)
            decay = torch.exp(-step[:, t] * torch.exp(p[f"A{end}_log"]))
            states = decay[:, None, None] * states + (step[:, t, None] * own)[:, :, None] * enter[:, t]
            read.append((states @ leave[:, t] + p[f"D{end}"][:, None] * own).flatten())
        return torch.stack(read, dim=1)

    for image in x.flatten(2):
        gate, mixed, step = project(p, "in_proj", image).split([inner, inner + 2 * d_state, heads])
        context = direction(mixed, step, "")
        if bidirectional:
            context = (context + direction(mixed.flip(1), step.flip(1), "_b").flip(1)) / 2
        context = context * silu(gate)
        context = context / torch.sqrt((context**2).mean(0) + 1e-5) * p["norm.weight"][:, None]
        out.append(project(p, "out_proj", context))
    return joined(out, x)


def ema_multiscale(p: Named, x: Tensor, training: bool, groups: int = 32) -> Tensor:
    out = []
    for image in x:
        parts = []
        for group in image.chunk(groups):
            height = group.shape[1]
            gates = sigmoid(project(p, "conv1x1", torch.cat([group.mean(2), group.mean(1)], dim=1)))
            gated = group * gates[:, :height, None] * gates[:, None, height:]
            centred = gated - gated.mean((1, 2), keepdim=True)
            gated = centred / torch.sqrt((centred**2).mean((1, 2), keepdim=True) + 1e-5)
            gated = gated * p["gn.weight"][:, None, None] + p["gn.bias"][:, None, None]
            near = window(group.flatten(1), height, group.shape[2], p["conv3x3.weight"], p["conv3x3.bias"])
            weights = soft(gated.mean((1, 2))) @ near + soft(near.mean(1)) @ gated.flatten(1)
            parts.append(group * sigmoid(weights.reshape(group.shape[1:])))
        out.append(torch.cat(parts))
    return torch.stack(out)


REFERENCES: dict[str, Reference] = {
    each.__name__: each
    for each in (
        *(pool, dwconv, gated_cnn, eca, simam, swin, grid, neighborhood, area, deformable, ttt, ssd),
        ema_multiscale,
    )
}
