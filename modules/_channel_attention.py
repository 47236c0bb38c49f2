"""Parts shared by mdta and xca: attention whose weights are between channels, by their likeness over all positions."""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_heads, check_positive
from ctxbench.modules._layers import without_autocast

SHORTEST = 1e-12  # no length of a channel is taken for less, as published


class ChannelAttention(nn.Module):
    """Attention between the C / `heads` channels of each head, with a learned `temperature` for each."""

    name = ""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads)
        check_heads(self.name, channels, heads)
        self.channels, self.heads = channels, heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def attend(self, maps: Tensor) -> Tensor:
        """Queries, keys and values [B, 3 C, H, W] to [B, C, H, W].

        The weights, not the maps, are divided by the lengths of queries and keys; half types and autocast do both in
        float32.
        """
        heads = torch.unflatten(maps.flatten(2), 1, (3, self.heads, -1))
        query, key, value = heads.unbind(1)  # [B, heads, C / heads, n]
        wide = torch.promote_types(maps.dtype, torch.float32)
        query, key = query.to(wide), key.to(wide)
        lengths = (torch.linalg.vector_norm(each, dim=3, keepdim=True).clamp(min=SHORTEST) for each in (query, key))
        of_queries, of_keys = lengths
        with without_autocast(maps):
            likeness = torch.matmul(query, key.transpose(2, 3)) * (self.temperature / of_queries)
        weights = torch.softmax(likeness / of_keys.transpose(2, 3), dim=3).to(maps.dtype)
        return torch.unflatten(torch.matmul(weights, value).flatten(1, 2), 2, maps.shape[2:])
