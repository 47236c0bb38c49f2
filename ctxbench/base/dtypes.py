"""The words for the dtype of a case, such as tf32 and autocast-bfloat16, and what each means."""

from typing import NamedTuple

TF32 = "tf32"
# What PyTorch does if nothing is set: TF32 in convolutions where the device has it, float32 in products.
TF32_CONVOLUTIONS = "tf32-convolutions"


# Those in which convolutions are computed in TF32 where the device has it.
IN_TF32 = (TF32, TF32_CONVOLUTIONS)


class Dtype(NamedTuple):
    """Dtype of weights and input, and of products under autocast; "" without it."""

    parameters: str
    autocast: str = ""


DTYPES = {
    "float32": Dtype("float32"),
    TF32: Dtype("float32"),
    TF32_CONVOLUTIONS: Dtype("float32"),
    "bfloat16": Dtype("bfloat16"),
    "float16": Dtype("float16"),
    "float64": Dtype("float64"),
    "autocast-bfloat16": Dtype("float32", "bfloat16"),
    "autocast-float16": Dtype("float32", "float16"),
}
# Other words for them; amp is what PyTorch's autocast takes on a GPU if nothing is said.
ALIASES = {
    "fp32": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "double": "float64",
    "amp": "autocast-float16",
    "amp-bf16": "autocast-bfloat16",
}
