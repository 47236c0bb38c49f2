"""Refusals with a sentence, or marks by name, of the unpredictable; a user's bad input gets the reason."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from wrapped import Wrapped

from ctxbench.base.mode import Mode
from ctxbench.model.case import Case, Measure
from ctxbench.model.messages import Values
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.memory.explain import explain
from ctxbench.plugins.memory.measure import measure_peak
from ctxbench.plugins.memory.metric import not_known
from ctxbench.plugins.memory.predict import kernels_on_meta, predict_peak
from ctxbench.worker.measurement import CaseMeasurement

IMAGE = torch.empty(2, 8, 6, 6, device="meta")


def applied(function: Callable[..., Any]) -> nn.Module:
    """A 1x1 convolution, then a function of its output."""
    return nn.Sequential(nn.Conv2d(8, 8, 1), Wrapped(function))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: x * x.mean().item(), r"test_memory_honesty.py:\d+ reads a tensor's values"),
        (lambda x: x if x.sum() > 0 else -x, "depends on the data"),
        (lambda x: x[x > 0], "depends on the data"),
        (lambda x: x + torch.tensor(x.tolist()), "depends on the data"),
        (lambda x: x + torch.zeros(8, 6, 6), "device=x.device"),
        (lambda x: x + torch.zeros(8, 6, 6, device="cuda"), "zeros asks for the device 'cuda' by name"),
        (lambda x: x.cuda(), "cuda asks for the device 'cuda' by name"),
        (lambda x: x.to("cpu"), "to asks for the device 'cpu' by name"),
        (lambda x: (None, 3), "returns tuple; it must return tensors, alone or in a tuple, a list or a dict"),
        (lambda x: None, "returns NoneType"),
        (lambda x: x @ torch.empty(7, 7, device=x.device), "fails on the meta device at test_memory_honesty.py"),
    ],
)
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_refused_with_a_sentence(function: Any, sentence: str, mode: Mode) -> None:
    with pytest.raises(UnpredictableError, match=sentence) as caught:
        predict_peak(applied(function), IMAGE, mode=mode)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Identity(), "calls no PyTorch operator"),
        (nn.LazyConv2d(4, 1), "run the module once"),
        (torch.jit.script(nn.Conv2d(8, 8, 1)), "compiled"),
        (applied(lambda x: nn.functional.interpolate(x, 12)[0].unsqueeze(0).to(torch.int32)), "has a gradient"),
    ],
)
def test_modules_that_have_no_training_step_to_predict(module: nn.Module, sentence: str) -> None:
    with pytest.raises(UnpredictableError, match=sentence):
        predict_peak(module, IMAGE, mode="train" if "gradient" in sentence else "infer")


def test_a_missing_second_input_names_the_argument_and_two_inputs_work() -> None:
    cross = Wrapped(lambda x, y: x + y)
    with pytest.raises(UnpredictableError, match="missing 1 required positional argument: 'y'"):
        predict_peak(cross, IMAGE, mode="infer")
    # 576 floats in blocks of 512 bytes
    assert predict_peak(cross, IMAGE, IMAGE.clone(), mode="infer").peak_bytes == 2560


def test_recurrent_layers_and_autocast_are_refused() -> None:
    tokens = torch.empty(2, 5, 8, device="meta")
    with pytest.raises(UnpredictableError, match="one library call on CUDA"):
        predict_peak(nn.LSTM(8, 8, batch_first=True), tokens, mode="train")
    with torch.autocast("cpu"), pytest.raises(UnpredictableError, match="give its dtype as"):
        predict_peak(nn.Linear(8, 8), tokens, mode="train")


def test_the_plain_attention_path_is_predicted_when_it_is_asked_for() -> None:
    attend = applied(lambda x: functional.scaled_dot_product_attention(x, x, x))
    with sdpa_kernel(SDPBackend.MATH):
        assert predict_peak(attend, IMAGE, mode="train").peak_bytes > 0


def test_the_fast_path_of_multihead_attention_is_refused() -> None:
    attention = Wrapped(lambda x, layer: layer(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True))
    tokens = torch.empty(2, 5, 8, device="meta")
    with pytest.raises(UnpredictableError, match="set_fastpath_enabled"):
        predict_peak(attention, tokens, mode="infer")
    assert predict_peak(attention, tokens, mode="train").peak_bytes > 0


@pytest.mark.parametrize(
    ("function", "mark"),
    [
        (Doubled.apply, "DoubledBackward"),
        (lambda x: x.cummax(1)[0], "aten.cummax"),
        (lambda x: functional.interpolate(x, scale_factor=2.0, mode="bicubic"), "aten.upsample_bicubic2d"),
        (lambda x: functional.alpha_dropout(x, 0.5, True), "aten.bernoulli_"),
    ],
)
def test_what_the_table_does_not_know_is_marked_by_name(function: Any, mark: str) -> None:
    assert mark in predict_peak(applied(function), IMAGE, mode="train").marks


@pytest.mark.parametrize(
    ("function", "mark"),
    [
        (lambda x: x.cumprod(1), "CumprodBackward0"),
        (lambda x: x.prod(1), "ProdBackward1"),
        (lambda x: x.prod(), "ProdBackward0"),
        (lambda x: torch.einsum("bchw,bchv->bhwv", x, x), "einsum under autocast"),
        (lambda x: torch.linalg.multi_dot([x[0, 0], x[0, 0].T, x[0, 0]]), "linalg_multi_dot under autocast"),
        (lambda x: functional.group_norm(x, 2), "group_norm"),
    ],
)
def test_a_peak_that_may_be_too_high_is_no_lower_bound(function: Any, mark: str) -> None:
    image = IMAGE.to(memory_format=torch.channels_last) if mark == "group_norm" else IMAGE
    autocast = torch.bfloat16 if mark.endswith("autocast") else None
    profile = predict_peak(applied(function), image, mode="train", device="cpu", autocast=autocast)
    told = [sentence for sentence in explain(profile) if f": {mark} (" in sentence]
    assert len(told) == 1
    assert "so the peak may be higher or lower:" in told[0]
    assert [note.code for note in not_known({"memory_marks": json.dumps([mark, "aten.any"])})] == ["not_certain"]
    assert [note.code for note in not_known({"memory_marks": '["aten.any"]'})] == ["lower_bound"]


def test_a_custom_operator_is_marked() -> None:
    @torch.library.custom_op("ctxbench_test::negate", mutates_args=())
    def negate(x: Tensor) -> Tensor:
        return -x

    @negate.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    profile = predict_peak(applied(lambda x: negate(x)), IMAGE, mode="infer")
    assert "ctxbench_test.negate" in profile.marks


def test_channels_last_is_marked() -> None:
    image = IMAGE.to(memory_format=torch.channels_last)
    assert "channels_last" in predict_peak(nn.Conv2d(8, 8, 1), image, mode="infer").marks


def test_a_case_in_channels_last_is_predicted_in_it() -> None:
    case = Case("ham_cd", "ham_cd", {"rank": 4}, (2, 8, 6, 6), memory_format="channels_last", device="meta")
    values: dict[str, Any] = {}
    CaseMeasurement(
        case, Measure(), lambda message: values.update(message.values if isinstance(message, Values) else {})
    ).run(["memory"])
    assert values["memory_train_predicted_bytes"] > 0
    assert "channels_last" in json.loads(values["memory_marks"])


def test_dropout_on_cuda_keeps_a_mask_of_one_byte_an_element() -> None:
    module = applied(lambda x: functional.dropout(x, 0.5))
    profile = predict_peak(module, IMAGE, mode="train")
    mask = next(block for block in profile.allocations if block.dtype == "bool")
    assert mask.bytes == -(-IMAGE.numel() // 512) * 512
    assert mask.category == "saved for backward"


@pytest.mark.parametrize(
    ("mode", "beside"),
    [
        # the product, the output and 1 / rms of each row
        ("infer", 2 * 2**18 + 2**12),
        # the same, the loss and its gradient, the gradients of map and weights, and a copy of the expanded gradient
        ("train", 2 * 2**18 + 2**12 + 2 * 512 + 2 * 2**18 + 512),
    ],
)
def test_rms_norm_on_cuda_is_one_kernel_that_keeps_one_number_a_row(mode: Mode, beside: int) -> None:
    module, x = nn.Sequential(nn.Linear(64, 64, bias=False), nn.RMSNorm(64)), torch.empty(1024, 64, device="meta")
    found = predict_peak(module.to("meta"), x, mode=mode)
    assert found.peak_bytes == 64 * 64 * 4 + 512 + beside
    assert [step.op for step in found.timeline if "rms" in step.op] == [
        "aten._fused_rms_norm.default", *["aten._fused_rms_norm_backward.default"] * (mode == "train")
    ]  # fmt: skip
    last = torch.empty(2, 4, 8, 64, device="meta").contiguous(memory_format=torch.channels_last)
    assert "pow" in str(predict_peak(nn.RMSNorm(64), last, mode="infer").timeline)  # rms_norm in layer_norm.cpp


def test_each_operator_with_parts_that_cuda_has_a_kernel_for_has_it_on_meta() -> None:
    listed = Path(torch.__file__).parents[1] / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    found = set()
    for each in listed.read_text(encoding="utf-8").split("\n- func: ")[1:]:
        devices = {name for names in re.findall(r"^    ([\w, ]+): ", each, re.MULTILINE) for name in names.split(", ")}
        if {"CompositeImplicitAutograd", "CUDA"} <= devices:
            found.add(each.partition("(")[0])
    assert "_fused_rms_norm" in found
    with kernels_on_meta("cuda"):
        for name in found:
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            assert operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.Meta), name


def test_neither_module_nor_input_is_changed() -> None:
    layer = nn.Conv2d(8, 8, 1)
    layer.weight.grad = torch.ones_like(layer.weight)
    module = nn.Sequential(layer, nn.BatchNorm2d(8)).eval()
    before = copy.deepcopy(module.state_dict())
    image = torch.randn(2, 8, 6, 6)
    predict_peak(module, image, mode="train")
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert layer.weight.grad is not None
    assert not module.training
    assert image.device.type == "cpu"


def test_the_prediction_repeats_exactly() -> None:
    module = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
    peaks = {predict_peak(module, IMAGE, mode="train").peak_bytes for _ in range(3)}
    assert len(peaks) == 1


@pytest.mark.parametrize("measure", [predict_peak, measure_peak])
def test_a_wrong_mode_names_the_two(measure: Any) -> None:
    with pytest.raises(ValueError, match="'train' or 'infer'"):
        measure(nn.Conv2d(8, 8, 1), IMAGE, mode="eval")


def test_a_wrong_device_names_the_three() -> None:
    with pytest.raises(ValueError, match="cuda, cuda-2020, cpu"):
        predict_peak(nn.Conv2d(8, 8, 1), IMAGE, mode="infer", device="tpu")  # type: ignore[arg-type]  # the wrong input


def test_measuring_on_meta_is_refused() -> None:
    with pytest.raises(UnpredictableError, match="are on cpu, meta"):
        measure_peak(nn.Conv2d(8, 8, 1), IMAGE, mode="infer")


def test_measuring_restores_the_module() -> None:
    module = nn.Conv2d(2, 2, 1).eval()
    image = torch.randn(1, 2, 3, 3)
    # weights 24 bytes, output 72, its sum 4, the gradient of the sum 4, and the weights' gradients over a copy
    assert measure_peak(module, image, mode="train") > measure_peak(module, image, mode="infer") == 24 + 72
    assert not module.training
    assert module.weight.grad is None
