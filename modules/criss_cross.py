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
        batch, height = x.size(0), x.size(2)
        down, across = self._weights(x).split([height, x.size(3)], dim=3)
        by_column, by_row = _lines(self.value(x))
        of_columns = torch.bmm(by_column, down.transpose(1, 2).flatten(0, 1).transpose(1, 2))  # [B * W, C, H]
        of_rows = torch.bmm(by_row, across.flatten(0, 1).transpose(1, 2))  # [B * H, C, W]
        of_columns = torch.unflatten(of_columns, 0, (batch, -1)).permute(0, 2, 3, 1)
        return of_columns + torch.unflatten(of_rows, 0, (batch, -1)).permute(0, 2, 1, 3)

    def _weights(self, x: Tensor) -> Tensor:
        """[B, H, W, H + W]: of each position's column, then of its row."""
        (queries_down, queries_across), (keys_down, keys_across) = _lines(self.query(x)), _lines(self.key(x))
        down = torch.bmm(queries_down.transpose(1, 2), keys_down)  # [B * W, H, H]
        itself = torch.eye(x.size(2), dtype=torch.bool, device=x.device)
        down = torch.unflatten(down.masked_fill(itself, float("-inf")), 0, (x.size(0), -1)).transpose(1, 2)
        across = torch.bmm(queries_across.transpose(1, 2), keys_across)  # [B * H, W, W]
        return torch.softmax(torch.cat([down, torch.unflatten(across, 0, (x.size(0), -1))], dim=3), dim=3)


def _lines(image: Tensor) -> tuple[Tensor, Tensor]:
    """The columns [B * W, c, H] and the rows [B * H, c, W] of [B, c, H, W]."""
    return image.permute(0, 3, 1, 2).flatten(0, 1), image.permute(0, 2, 1, 3).flatten(0, 1)
