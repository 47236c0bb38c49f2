"""Blocks of backbones and detectors once more, from their equations, as a yardstick for the tests: plain and slow.

The functions are called as those of `reference_field`.
"""

import math

import torch
from reference_attention import Named, attend, cells, normalise, project, sigmoid
from reference_blocks import gelu, seen
from reference_field import Reference, joined
from torch import Tensor
from torch.nn import functional


def filled(x: Tensor, down: int, across: int) -> Tensor:
    """[B, C, H, W] with zeros below and at the right up to multiples of two numbers."""
    return functional.pad(x, (0, -x.shape[3] % across, 0, -x.shape[2] % down))


def places_of(height: int, width: int, tall: int, wide: int) -> list[list[int]]:
    """The numbers of the positions of each window of `tall` x `wide`."""
    return [
        [r * width + c for r in range(top, top + tall) for c in range(left, left + wide)]
        for top in range(0, height, tall)
        for left in range(0, width, wide)
    ]


def put(parts: list[Tensor], places: list[list[int]]) -> Tensor:
    """Columns [C, m] of each window, at their places: [C, n]."""
    order = torch.tensor([place for own in places for place in own])
    return torch.cat(parts, dim=1)[:, order.argsort()]


def by_heads(query: Tensor, key: Tensor, value: Tensor, width: int, scale: float) -> Tensor:
    heads = zip(query.split(width), key.split(width), value.split(width), strict=True)
    return torch.cat([attend(q, k, v, scale) for q, k, v in heads])


def hilo(
    p: Named,
    x: Tensor,
    training: bool,
    head_width: int = 32,
    window_size: int = 2,
    alpha: float = 0.9,
    qkv_bias: bool = True,
) -> Tensor:
    heads, wide = x.shape[1] // head_width, filled(x, window_size, window_size)
    low = (heads if window_size == 1 else math.floor(heads * alpha)) * head_width
    assert ("l_q.weight" in p, "h_qkv.weight" in p) == (low > 0, low < x.shape[1])
    assert qkv_bias == any(name in p for name in ("l_q.bias", "h_qkv.bias"))
    height, width = wide.shape[2:]
    places, scale = places_of(height, width, window_size, window_size), head_width**-0.5
    out = []
    for image in wide.flatten(2):
        parts = []
        if low < x.shape[1]:
            maps = [project(p, "h_qkv", image[:, each]).chunk(3) for each in places]
            own = [by_heads(q, k, v, head_width, scale) for q, k, v in maps]
            parts.append(project(p, "h_proj", put(own, places)))
        if low:
            means = torch.stack([image[:, each].mean(1) for each in places], dim=1)
            key, value = project(p, "l_kv", means).chunk(2)
            context = by_heads(project(p, "l_q", image), key, value, head_width, scale)
            parts.append(project(p, "l_proj", context))
        out.append(torch.cat(parts))
    return joined(out, wide)[:, :, : x.shape[2], : x.shape[3]]


def mlca(
    p: Named, x: Tensor, training: bool, local_size: int = 5, local_weight: float = 0.5, kernel_size: int = 0
) -> Tensor:
    channels, size = x.shape[1], local_size
    width = int((math.log2(channels) + 1) / 2)
    assert p["conv.weight"].shape[2] == (kernel_size or (width if width % 2 else width + 1))

    def along(name: str, row: Tensor) -> Tensor:
        weight = p[f"{name}.weight"][0, 0]
        filled_row = functional.pad(row, (len(weight) // 2, len(weight) // 2))
        return sigmoid(torch.stack([filled_row[i : i + len(weight)] @ weight for i in range(len(row))]))

    def share(index: int, side: int) -> list[int]:
        return [*range(index * size // side, -(-(index + 1) * size // side))]

    out = []
    for image in x:
        local = cells(image, size)  # [C, s s]
        gate = local_weight * along("conv_local", local.T.flatten()).reshape(-1, channels).T
        gate = gate + (1 - local_weight) * along("conv", local.mean(1))[:, None]
        grid = gate.reshape(channels, size, size)
        rows, columns = ([share(i, side) for i in range(side)] for side in image.shape[1:])
        back = [torch.stack([grid[:, r][:, :, c].mean((1, 2)) for c in columns], dim=1) for r in rows]
        out.append(image * torch.stack(back, dim=1))
    return torch.stack(out)


def cga(
    p: Named, x: Tensor, training: bool, heads: int = 4, key_dim: int = 16, window_size: int = 7, kernel_size: int = 5
) -> Tensor:
    wide, size, width = filled(x, window_size, window_size), window_size, x.shape[1] // heads
    height, across = wide.shape[2:]
    places = places_of(height, across, size, size)
    groups = [image[:, own] for image in wide.flatten(2) for own in places]
    found: list[list[Tensor]] = []
    apart = [
        [abs(i // size - j // size) * size + abs(i % size - j % size) for j in range(size**2)] for i in range(size**2)
    ]
    for head in range(heads):
        assert p[f"dws.{head}.c.weight"].shape[2] == (kernel_size or (7, 5, 3)[min(head, 2)])
        own = [each[head * width : (head + 1) * width] for each in groups]
        if head:
            own = [part + before for part, before in zip(own, found[-1], strict=True)]
        maps = normalise(p, f"qkvs.{head}.bn", [project(p, f"qkvs.{head}.c", part) for part in own], training)
        queries = [seen(each[:key_dim], size, size, p, f"dws.{head}.c") for each in maps]
        bias = p["attention_biases"][head][torch.tensor(apart)]
        contexts = []
        for query, each in zip(normalise(p, f"dws.{head}.bn", queries, training), maps, strict=True):
            scores = query.T @ each[key_dim : 2 * key_dim] * key_dim**-0.5 + bias
            weights = scores.exp() / scores.exp().sum(1, keepdim=True)
            contexts.append(each[2 * key_dim :] @ weights.T)
        found.append(contexts)
    mixed = [project(p, "proj.1.c", torch.cat(each).clamp(min=0)) for each in zip(*found, strict=True)]
    mixed = normalise(p, "proj.1.bn", mixed, training)
    count = len(places)
    images = [put(mixed[i * count : (i + 1) * count], places) for i in range(len(x))]
    return joined(images, wide)[:, :, : x.shape[2], : x.shape[3]]


def rope_attention(
    p: Named,
    x: Tensor,
    training: bool,
    head_width: int = 64,
    rope: str = "dinov3",
    base: float = 0.0,
    registers: int = 0,
    reference: int = 16,
) -> Tensor:
    height, width = x.shape[2:]
    quarter, base = head_width // 4, base or {"dinov3": 100.0, "eva02": 10000.0}[rope]

    def turned(column: Tensor, row: int, across: int) -> Tensor:
        """A position's channels of one head, each pair as a complex number."""
        angles = []
        for place, side in ((row, height), (across, width)):
            at = 2 * math.pi * (2 * (place + 0.5) / side - 1) if rope == "dinov3" else place * reference / side
            angles += [at * base ** (-4 * t / head_width) for t in range(quarter)]
        pairs = [(j, j + head_width // 2) if rope == "dinov3" else (2 * j, 2 * j + 1) for j in range(head_width // 2)]
        out = [column[0]] * head_width
        for angle, (one, other) in zip(angles, pairs, strict=True):
            out[one] = column[one] * math.cos(angle) - column[other] * math.sin(angle)
            out[other] = column[other] * math.cos(angle) + column[one] * math.sin(angle)
        return torch.stack(out)

    bias = torch.cat([p["q_bias"], torch.zeros_like(p["q_bias"]), p["v_bias"]])[:, None]
    out = []
    for image in x.flatten(2):
        tokens = torch.cat([p["reg_token"][0].T, image], dim=1) if registers else image
        maps = (project(p, "qkv", tokens) + bias).chunk(3)
        contexts = []
        for query, key, value in zip(*(each.split(head_width) for each in maps), strict=True):
            moved = [
                torch.stack([turned(each[:, registers + i], i // width, i % width) for i in range(height * width)], 1)
                for each in (query, key)
            ]
            keys = torch.cat([key[:, :registers], moved[1]], dim=1)
            contexts.append(attend(moved[0], keys, value, head_width**-0.5))
        out.append(project(p, "proj", torch.cat(contexts)))
    return joined(out, x)


def bra(
    p: Named, x: Tensor, training: bool, head_width: int = 32, n_win: int = 7, topk: int = 4, side_dwconv: int = 5
) -> Tensor:
    wide = filled(x, n_win, n_win)
    height, width = wide.shape[2:]
    assert p["lepe.weight"].shape[2] == side_dwconv
    places = places_of(height, width, height // n_win, width // n_win)
    out = []
    for image in wide.flatten(2):
        query, key, value = project(p, "qkv.qkv", image).chunk(3)
        means = [torch.stack([each[:, own].mean(1) for own in places]) for each in (query, key)]
        contexts = []
        for own, scores in zip(places, means[0] @ means[1].T, strict=True):
            chosen = [place for number in scores.argsort(descending=True)[:topk] for place in places[number]]
            scale = x.shape[1] ** -0.5
            contexts.append(by_heads(query[:, own], key[:, chosen], value[:, chosen], head_width, scale))
        near = seen(value, height, width, p, "lepe")
        out.append(project(p, "wo", put(contexts, places) + near))
    return joined(out, wide)[:, :, : x.shape[2], : x.shape[3]]


def hypergraph(
    p: Named, x: Tensor, training: bool, hyperedges: int = 8, head_width: int = 16, context: str = "both"
) -> Tensor:
    def layer(name: str, images: list[Tensor]) -> list[Tensor]:
        images = [project(p, f"{name}.conv", image) for image in images]
        return [each * sigmoid(each) for each in normalise(p, f"{name}.bn", images, training, eps=1e-3)]

    made, images = "m.hgnn.edge_generator", list(x.flatten(2))
    mixed = []
    for tokens in layer("cv1", images):
        parts = [tokens.mean(1)] * (context != "max") + [tokens.amax(1)] * (context != "mean")
        offset = project(p, f"{made}.context_net", torch.cat(parts)[:, None]).reshape(hyperedges, -1)
        prototypes = p[f"{made}.prototype_base"] + offset
        queries = project(p, f"{made}.pre_head_proj", tokens)
        heads = zip(queries.split(head_width), prototypes.split(head_width, dim=1), strict=True)
        scores = torch.stack([own @ query for query, own in heads]).mean(0) / math.sqrt(head_width)  # [E, n]
        shares = torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True)
        edges = gelu(project(p, "m.hgnn.edge_proj.0", tokens @ shares.T))
        mixed.append(gelu(project(p, "m.hgnn.node_proj.0", edges @ shares)) + tokens)
    both = [torch.cat(pair) for pair in zip(mixed, layer("cv2", images), strict=True)]
    return joined(layer("cv3", both), x)


REFERENCES: dict[str, Reference] = {each.__name__: each for each in (hilo, mlca, cga, rope_attention, bra, hypergraph)}
