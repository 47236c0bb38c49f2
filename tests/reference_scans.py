"""The modules with states once more, from their equations, position by position: a yardstick for the tests."""

import math

import torch
from reference_attention import Named, layer_norm, project, sigmoid, silu, window
from reference_field import Reference, joined
from torch import Tensor


def softplus(x: Tensor) -> Tensor:
    return torch.log1p(torch.exp(x))


def scanned(value: Tensor, step: Tensor, rate: Tensor, enter: Tensor, leave: Tensor, skip: Tensor) -> Tensor:
    """A selective scan of [D, n] by a loop: rate [D, S], enter and leave [S, n], skip [D]."""
    state, out = torch.zeros_like(rate), []
    for t in range(value.shape[1]):
        state = torch.exp(step[:, t, None] * rate) * state + step[:, t, None] * enter[:, t] * value[:, t, None]
        out.append(state @ leave[:, t] + skip * value[:, t])
    return torch.stack(out, dim=1)


def weighed(value: Tensor, key: Tensor, decay: Tensor, first: Tensor) -> Tensor:
    """The weighted mean of bi_wkv of [C, n], from all pairs of positions."""
    place = torch.arange(value.shape[1])
    apart = (place[:, None] - place).abs()
    exponent = key[:, None, :] - (apart - 1) * decay[:, None, None]  # [C, t, i]
    exponent = torch.where(apart == 0, (key + first[:, None])[:, :, None], exponent)
    weight = torch.exp(exponent - exponent.detach().amax(2, keepdim=True))
    return (weight * value[:, None, :]).sum(2) / weight.sum(2)


def ss2d(p: Named, x: Tensor, training: bool, d_state: int = 1, ssm_ratio: float = 1.0, d_conv: int = 3) -> Tensor:
    height, width = x.shape[2:]
    rank, out = -(-x.shape[1] // 16), []
    columns = torch.tensor([row * width + column for column in range(width) for row in range(height)])
    orders = [torch.arange(height * width), columns]
    orders += [order.flip(0) for order in orders]
    for image in x.flatten(2):
        inner = project(p, "in_proj", image)
        inner = silu(window(inner, height, width, p["conv2d.weight"], None) if d_conv > 1 else inner)
        total = torch.zeros_like(inner)
        for route, order in enumerate(orders):
            own = slice(route * inner.shape[0], (route + 1) * inner.shape[0])
            tokens = inner[:, order]
            short, enter, leave = (p["x_proj_weight"][route] @ tokens).split((rank, d_state, d_state))
            step = softplus(p["dt_projs_weight"][route] @ short + p["dt_projs_bias"][route][:, None])
            result = scanned(tokens, step, -torch.exp(p["A_logs"][own]), enter, leave, p["Ds"][own])
            total = total + result[:, torch.argsort(order)]
        out.append(project(p, "out_proj", layer_norm(p, "out_norm", total)))
    return joined(out, x)


def vim(p: Named, x: Tensor, training: bool, d_state: int = 16, d_conv: int = 4, expand: int = 2) -> Tensor:
    rank, out = -(-x.shape[1] // 16), []

    def direction(tokens: Tensor, end: str, rate: str) -> Tensor:
        taps, before = p[f"conv1d{end}.weight"][:, 0], torch.zeros(tokens.shape[0], d_conv - 1, dtype=tokens.dtype)
        padded = torch.cat([before, tokens], dim=1)
        seen = [(padded[:, t : t + d_conv] * taps).sum(1) + p[f"conv1d{end}.bias"] for t in range(tokens.shape[1])]
        inner = silu(torch.stack(seen, dim=1))
        short, enter, leave = project(p, f"x_proj{end}", inner).split((rank, d_state, d_state))
        step = softplus(project(p, f"dt_proj{end}", short))
        return scanned(inner, step, -torch.exp(p[rate]), enter, leave, p[f"D{end}"])

    for image in x.flatten(2):
        tokens, gate = project(p, "in_proj", image).chunk(2)
        forward = direction(tokens, "", "A_log") * silu(gate)
        backward = (direction(tokens.flip(1), "_b", "A_b_log") * silu(gate.flip(1))).flip(1)
        out.append(project(p, "out_proj", (forward + backward) / 2))
    return joined(out, x)


def nc_ssd(
    p: Named, x: Tensor, training: bool, heads: int = 16, d_state: int = 64, expand: int = 2, d_conv: int = 3
) -> Tensor:
    height, width = x.shape[2:]
    inner, out = expand * x.shape[1], []
    for image in x.flatten(2):
        gate, tokens, short = project(p, "in_proj", image).split((inner, inner + 2 * d_state, heads))
        tokens = silu(window(tokens, height, width, p["conv2d.weight"], p["conv2d.bias"]))
        value, enter, leave = tokens.split((inner, d_state, d_state))
        weight = softplus(short + p["dt_bias"][:, None]) * torch.exp(p["A_log"])[:, None]
        context = []
        for head, own in enumerate(value.chunk(heads)):
            memory = enter @ (weight[head] * own).T  # [d_state, width]
            context.append(memory.T @ leave + p["D"][head] * own)
        out.append(project(p, "out_proj", layer_norm(p, "norm", torch.cat(context)) * gate))
    return joined(out, x)


def bi_wkv(p: Named, x: Tensor, training: bool) -> Tensor:
    channels, height, width = x.shape[1:]
    out = []
    for image in x:
        aside = torch.zeros_like(image)
        for channel in range(channels):
            part = [int(channels * share) for share in (0.25, 0.5, 0.75)]
            down, right = [(0, -1), (0, 1), (-1, 0), (1, 0)][sum(channel >= end for end in part)]
            for i in range(height):
                for j in range(width):
                    if 0 <= i + down < height and 0 <= j + right < width:
                        aside[channel, i, j] = image[channel, i + down, j + right]
        mixed = []
        for name in ("k", "v", "r"):
            share = p[f"spatial_mix_{name}"].reshape(-1, 1, 1)
            mixed.append((share * image + (1 - share) * aside).flatten(1))
        key, value = project(p, "key", mixed[0]), project(p, "value", mixed[1])
        gate = sigmoid(project(p, "receptance", mixed[2]))
        n = height * width
        out.append(project(p, "output", gate * weighed(value, key, p["spatial_decay"] / n, p["spatial_first"] / n)))
    return joined(out, x)


def gated_delta(
    p: Named,
    x: Tensor,
    training: bool,
    heads: int = 6,
    head_width: int = 0,
    expand_v: int = 2,
    d_conv: int = 4,
    chunk_size: int = 64,
    bidirectional: bool = True,
) -> Tensor:
    """Position by position, whatever the chunks."""
    width = head_width or x.shape[1] // 8
    shapes = {"q": width, "k": width, "v": expand_v * width}

    def direction(maps: dict[str, Tensor], end: str) -> Tensor:
        made = {}
        for name, size in shapes.items():
            taps = p[f"{name}_conv1d{end}.weight"][:, 0]
            assert taps.shape[1] == d_conv
            padded = torch.cat([torch.zeros(len(taps), d_conv - 1, dtype=x.dtype), maps[name]], dim=1)
            seen = [silu((padded[:, t : t + d_conv] * taps).sum(1)) for t in range(maps[name].shape[1])]
            made[name] = torch.stack(seen).reshape(-1, heads, size)  # [n, heads, size]
        query, key = (made[name] / torch.sqrt((made[name] ** 2).sum(2, keepdim=True) + 1e-6) for name in "qk")
        decay = torch.exp(-torch.exp(p[f"A{end}_log"]) * softplus(maps["a"].T + p[f"dt_bias{end}"]))
        enter = sigmoid(maps["b"].T)
        read = []
        state = torch.zeros(heads, width, expand_v * width, dtype=x.dtype)
        for t in range(len(query)):
            state = decay[t, :, None, None] * state
            missing = made["v"][t] - (key[t, :, :, None] * state).sum(1)
            state = state + key[t, :, :, None] * (enter[t, :, None] * missing)[:, None]
            read.append((query[t, :, :, None] * state).sum(1) / math.sqrt(width))
        return torch.stack(read)

    out = []
    for image in x.flatten(2):
        maps = {name: project(p, f"{name}_proj", image) for name in "qkvab"}
        read = direction(maps, "")
        if bidirectional:
            read = (read + direction({name: each.flip(1) for name, each in maps.items()}, "_b").flip(0)) / 2
        read = read / torch.sqrt((read**2).mean(2, keepdim=True) + 1e-5) * p["o_norm.weight"]
        out.append(project(p, "o_proj", read.flatten(1).T * silu(project(p, "g_proj", image))))
    return joined(out, x)


SCAN_REFERENCES: dict[str, Reference] = {each.__name__: each for each in (ss2d, vim, nc_ssd, bi_wkv, gated_delta)}
