"""Criss-cross attention: each position attends to its row and its column, and again, so that it sees every other.

Source: Huang et al., CCNet: Criss-Cross Attention for Semantic Segmentation, ICCV 2019. Without CCNet's 3x3
convolutions around it. One softmax over row and column together, the position itself once; the passes share weights.
Any H and W.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, check_positive, reduced
from ctxbench.registry import register


@register(
    "criss_cross",
    title="Criss-cross attention (CC)",
    paper="Huang et al., CCNet: Criss-Cross Attention for Semantic Segmentation, ICCV 2019",
    year=2019,
    family="sparse attention",
    params="C**2 + C + 2*(C + 1)*(C//reduction) + 1",
    macs="recurrence*(N*(C**2 + 2*C*(C//reduction)) + N*(H + W)*(C//reduction + C) + N*C)",
    complexity="n*(H + W)*C + n*C**2",
    reach="n if recurrence > 1 else H + W - 1",
    public_code="speedinghzl/CCNet, MIT",
)
class CrissCross(nn.Module):
    """[B, C, H, W] to [B, C, H, W] in `recurrence` passes; queries and keys have C // `reduction` channels.

    With one pass, a position sees its row and its column alone.
    """

    def __init__(self, channels: int, *, recurrence: int = 2, reduction: int = 8) -> None:
        super().__init__()
        width = reduced("criss_cross", channels, reduction)
        check_positive(recurrence=recurrence)
        self.channels, self.recurrence = channels, recurrence
        self.query = nn.Conv2d(channels, width, 1)
        self.key = nn.Conv2d(channels, width, 1)
        self.value = nn.Conv2d(channels, channels, 1)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "criss_cross")
        for _ in range(self.recurrence):
            x = self.gamma * self._attend(x) + x
        return x

    def _attend(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        height = x.size(2)
        # Columns: [B * W, c, H]; rows: [B * H, c, W].
        columns = [image.permute(0, 3, 1, 2).flatten(0, 1) for image in (query, key, value)]
        rows = [image.permute(0, 2, 1, 3).flatten(0, 1) for image in (query, key, value)]
        down = torch.bmm(columns[0].transpose(1, 2), columns[1])  # [B * W, H, H]
        itself = torch.eye(height, dtype=torch.bool, device=x.device)
        down = torch.unflatten(down.masked_fill(itself, float("-inf")), 0, (x.size(0), -1)).transpose(1, 2)
        across = torch.unflatten(torch.bmm(rows[0].transpose(1, 2), rows[1]), 0, (x.size(0), -1))  # [B, H, W, W]
        weights = torch.softmax(torch.cat([down, across], dim=3), dim=3)  # [B, H, W, H + W]
        down, across = weights.split([height, x.size(3)], dim=3)
        of_columns = torch.bmm(columns[2], down.transpose(1, 2).flatten(0, 1).transpose(1, 2))  # [B * W, C, H]
        of_rows = torch.bmm(rows[2], across.flatten(0, 1).transpose(1, 2))  # [B * H, C, W]
        of_columns = torch.unflatten(of_columns, 0, (x.size(0), -1)).permute(0, 2, 3, 1)
        of_rows = torch.unflatten(of_rows, 0, (x.size(0), -1)).permute(0, 2, 1, 3)
        return of_columns + of_rows
