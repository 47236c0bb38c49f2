"""Spectral transform: a 1x1 convolution on the channels of the Fourier spectrum, so that each bin sees all positions.

Source: Chi et al., Fast Fourier Convolution, NeurIPS 2020. The spectral transform at stride 1, without the local
Fourier unit. The changed spectrum is that of no real image, and libraries invert it differently; here it is inverted as
on the CPU: an inverse transform over the rows, then, with the imaginary part of the first column and of an even width's
last one dropped, one over the columns. Half types are transformed in float32.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, reduced
from ctxbench.modules._norm import conv_norm_relu
from ctxbench.registry import register


def _image(columns: Tensor, width: int) -> Tensor:
    """The real image [B, d, H, W] of columns [B, d, H, W // 2 + 1], which it changes; rows need not be Hermitian."""
    imaginary = torch.view_as_real(columns)[..., 1]
    imaginary[..., 0].zero_()
    if width % 2 == 0:
        imaginary[..., -1].zero_()
    image: Tensor = torch.fft.irfft(columns, n=width, dim=3, norm="ortho")
    return image


@register(
    "spectral",
    title="Spectral transform (FFC)",
    paper="Chi et al., Fast Fourier Convolution, NeurIPS 2020",
    year=2020,
    family="spectral",
    params="2*C*(C//2) + 4*(C//2)**2 + 6*(C//2)",
    macs="2*N*C*(C//2) + N*(C//2) + B*H*(W//2 + 1)*(4*(C//2)**2 + 2*(C//2))",
    complexity="n*C**2 + n*log(n)*C",
    public_code="pkumivision/FFC, Apache-2.0",
)
class SpectralTransform(nn.Module):
    """[B, C, H, W] to [B, C, H, W]; the spectrum has C // 2 complex channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        width = reduced("spectral", channels, 2)
        self.channels = channels
        self.input = conv_norm_relu(channels, width)
        self.bins = conv_norm_relu(2 * width, 2 * width)
        self.output = nn.Conv2d(width, channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        check_input(x, self.channels, "spectral")
        image = self.input(x)
        wide = torch.promote_types(x.dtype, torch.float32)  # there is no transform of half precision on the CPU
        columns = torch.fft.ifft(self._changed(image, wide), dim=2, norm="ortho")
        out: Tensor = self.output(image + _image(columns, int(x.size(3))).to(x.dtype))
        return out

    def _changed(self, image: Tensor, wide: torch.dtype) -> Tensor:
        """The half spectrum [B, d, H, W // 2 + 1] of an image [B, d, H, W], its channels mixed."""
        parts = torch.view_as_real(torch.fft.rfft2(image.to(wide), norm="ortho"))
        parts = parts.permute(0, 1, 4, 2, 3).flatten(1, 2).to(image.dtype)  # real and imaginary parts in turn
        parts = torch.unflatten(self.bins(parts), 1, (-1, 2)).permute(0, 1, 3, 4, 2).to(wide)
        return torch.view_as_complex(parts.contiguous())
