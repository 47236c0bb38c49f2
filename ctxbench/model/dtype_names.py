"""Names of the dtypes of tensors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def dtypes(x: "torch.Tensor", y: "torch.Tensor") -> str:
    """`float32 in, float64 out`."""
    return f"{name_of(x.dtype)} in, {name_of(y.dtype)} out"


def name_of(dtype: "torch.dtype") -> str:
    return str(dtype).removeprefix("torch.")
