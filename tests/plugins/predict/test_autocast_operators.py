"""The operators under autocast, by which times are predicted."""

import pytest
import torch
from torch import Tensor
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.plugins.predict.operators import operators_of

HALF = torch.float16


def test_products_are_of_the_lower_dtype_and_the_rest_of_its_own() -> None:
    def attend(x: Tensor) -> Tensor:
        x = x.flatten(2)
        return (x @ (x.transpose(1, 2) @ x).softmax(-1)).unsqueeze(-1)

    x = torch.empty(2, 32, 16, 16, device="meta")
    found = operators_of(Wrapped(attend), x, mode="infer", autocast=HALF)
    dtypes = {operator.name: operator.dtype for operator in found}
    assert (dtypes["bmm"], dtypes["_softmax"]) == ("float16", "float32")
    copies = [operator for operator in found if operator.name == "_to_copy"]
    assert len(copies) == 5  # the input three times, to and from the softmax
    assert "_to_copy" not in {operator.name for operator in operators_of(Wrapped(attend), x, mode="infer")}


def test_a_part_that_switches_autocast_off_keeps_its_dtypes() -> None:
    def partly(x: Tensor) -> Tensor:
        x = x.flatten(2)
        with torch.autocast("cuda", enabled=False):
            x = x @ x.transpose(1, 2)
        return (x @ x).unsqueeze(-1)

    x = torch.empty(2, 32, 16, 16, device="meta")
    found = operators_of(Wrapped(partly), x, mode="infer", autocast=HALF)
    assert [operator.dtype for operator in found if operator.name == "bmm"] == ["float32", "float16"]
    assert not torch.is_autocast_enabled("cuda")


@pytest.mark.parametrize("name", ["lite_mla", "mdta", "polaformer", "xca"])
def test_sums_that_would_overflow_stay_in_float32_under_autocast(name: str) -> None:
    x = torch.empty(1, 64, 8, 8, device="meta")
    found = operators_of(registry.get(name).build(64), x, mode="infer", autocast=HALF)
    first = {operator.name: operator.dtype for operator in reversed(found)}
    assert (first["bmm"], first["convolution"]) == ("float32", "float16")
