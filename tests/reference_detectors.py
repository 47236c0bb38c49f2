"""Blocks of detectors once more, from their equations, as a yardstick for the tests: plain and slow.

The functions are called as those of `reference_field`.
"""

import torch
from reference_attention import project
from reference_blocks import gelu, seen, sigmoid
from reference_field import Named, Reference, joined
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


REFERENCES: dict[str, Reference] = {each.__name__: each for each in (lska, ela)}
