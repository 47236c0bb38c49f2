"""Spectral transform: a 1x1 convolution on the channels of the Fourier spectrum, so that each bin sees all positions.

Source: Chi et al., Fast Fourier Convolution, NeurIPS 2020; the spectral transform at stride 1, without the local
Fourier unit. The changed spectrum is that of no real image; the inverse is taken as on the CPU: an inverse transform
over the rows, then, with the imaginary part of the first column and of an even width's last one dropped, one over the
columns.
"""

import torch
from torch import Tensor, nn

from ctxbench.modules._checks import check_input, reduced
from ctxbench.modules._norm import conv_norm_relu
from ctxbench.registry import register


def _inverse(spectrum: Tensor, height: int, width: int) -> Tensor:
    """The real image [B, d, H, W] of a half spectrum [B, d, H, W // 2 + 1] that need not be Hermitian."""
    columns = torch.fft.ifft(spectrum, n=height, dim=2, norm="ortho")
    drop = torch.zeros(columns.size(3), dtype=torch.bool, device=columns.device)
    drop[0] = True
    if width % 2 == 0:
        drop[-1] = True
    columns = torch.complex(columns.real, columns.imag.masked_fill(drop, 0.0))
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
        spectrum = torch.view_as_real(torch.fft.rfft2(image.to(wide), norm="ortho"))  # [B, d, H, W // 2 + 1, 2]
        parts = spectrum.permute(0, 1, 4, 2, 3).flatten(1, 2).to(x.dtype)  # real and imaginary parts in turn
        parts = torch.unflatten(self.bins(parts), 1, (-1, 2)).permute(0, 1, 3, 4, 2).to(wide)
        changed = torch.view_as_complex(parts.contiguous())
        out: Tensor = self.output(image + _inverse(changed, int(x.size(2)), int(x.size(3))).to(x.dtype))
        return out
