"""Which calls of `scaled_dot_product_attention` a fused kernel can take, whatever the device."""

import torch
from torch import Tensor


def is_fusible(*maps: Tensor) -> bool:
    """Whether query, key and value are as every fused kernel needs them; other calls take PyTorch's math path.

    Four dimensions, none empty, the same batch and heads, and the channels of a position side by side
    (aten/src/ATen/native/transformers/sdp_utils_cpp.h); and `torch.nn.attention.sdpa_kernel` leaves a fused kernel
    switched on. A device may have further conditions.
    """
    switched = torch.backends.cuda  # also the CPU's
    on = switched.flash_sdp_enabled() or switched.mem_efficient_sdp_enabled() or switched.cudnn_sdp_enabled()
    return on and all(
        tensor.dim() == 4
        and tensor.numel() > 0
        and tensor.shape[:2] == maps[0].shape[:2]
        and (tensor.stride(-1) == 1 or tensor.shape[-1] == 1)
        for tensor in maps
    )
