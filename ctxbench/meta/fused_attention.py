"""Rules for calls of `scaled_dot_product_attention` that a fused kernel can take, on any device."""

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

BATCH_OF_ONE = TorchVersion(torch.__version__) >= "2.14"


def takes_three_dimensions(*maps: Tensor) -> bool:
    """True if these maps [heads, positions, channels] are taken as a batch of one, as PyTorch does since 2.14."""
    return BATCH_OF_ONE and all(each.dim() == 3 for each in maps)


def is_fusible(*maps: Tensor, grouped: bool = False) -> bool:
    """Return whether query, key and value are as a fused kernel needs them; other calls take PyTorch's math path.

    Four dimensions (since PyTorch 2.14 also three), none empty, the same batch and heads, channels side by side
    (aten/src/ATen/native/transformers/sdp_utils_cpp.h); and `torch.nn.attention.sdpa_kernel` leaves a fused kernel
    switched on. With `grouped` (`enable_gqa`) the heads of keys, as many as of values, divide those of queries
    (check_grouped_query_attention there). A device may have further conditions.
    """
    if takes_three_dimensions(*maps):
        maps = tuple(each.unsqueeze(0) for each in maps)
    switched = torch.backends.cuda  # also the CPU's
    on = switched.flash_sdp_enabled() or switched.mem_efficient_sdp_enabled() or switched.cudnn_sdp_enabled()
    return (
        on
        and all(
            tensor.dim() == 4
            and tensor.numel() > 0
            and tensor.shape[0] == maps[0].shape[0]
            and (tensor.stride(-1) == 1 or tensor.shape[-1] == 1)
            for tensor in maps
        )
        and _heads_match(*(tensor.shape[1] for tensor in maps), grouped=grouped)
    )


def _heads_match(queries: int, *others: int, grouped: bool) -> bool:
    return len({*others}) == 1 and (queries % others[0] == 0 if grouped else queries == others[0])
