"""Batch normalisation of a branch that may have one value a channel."""

from torch import Tensor, nn
from torch.nn import functional


class BatchNormOfFew(nn.BatchNorm2d):
    """Batch normalisation that takes one value a channel in training: with the running statistics, left as they are.

    torch's own raises an error there, so that a module with a 1x1 branch could not be trained on a single image.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.size(1):
            return functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        out: Tensor = super().forward(x)
        return out


def conv_norm_relu(inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> nn.Sequential:
    """A convolution without bias that keeps H and W, batch normalisation and ReLU."""
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False),
        BatchNormOfFew(outputs),
        nn.ReLU(inplace=True),
    )
