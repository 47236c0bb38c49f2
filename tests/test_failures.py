"""Statuses of exceptions in a case: messages of CUDA, its libraries and torch, a row each."""

import importlib
from pathlib import Path

import pytest
import torch

from ctxbench.base.errors import ModuleCodeError
from ctxbench.devices import Unsupported
from ctxbench.model.failures import DoesNotFit, NotFinite, describe_failure

# The first line of each text, and the status.
TEXTS = {
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB": "oom",
    "CUDA error: out of memory": "oom",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": "oom",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED": "oom",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED": "oom",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`": "oom",
    "cuFFT error: CUFFT_ALLOC_FAILED": "oom",
    "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory": "oom",
    "CUDA error: an illegal memory access was encountered": "crashed",
    "Triton Error [CUDA]: an illegal memory access was encountered": "crashed",
    "CUDA error: device-side assert triggered": "crashed",
    "CUDA error: unspecified launch failure": "crashed",
    "CUDA error: the launch timed out and was terminated": "crashed",
    "CUDA error: misaligned address": "crashed",
    "CUDA error: an illegal instruction was encountered": "crashed",
    "CUDA error: operation not supported on global/shared address space": "crashed",
    "CUDA error: invalid program counter": "crashed",
    "CUDA error: hardware stack error": "crashed",
    "CUDA error: uncorrectable ECC error encountered": "crashed",
    "CUDA error: unknown error": "crashed",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`": "crashed",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED": "crashed",
    "CUDA error: invalid configuration argument": "error",
    "CUDA error: no kernel image is available for execution on the device": "error",
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable": "error",
    "CUDA error: the attribute is not supported on this device": "error",
    "CUDA driver error: operation is not supported": "error",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if the input is not contiguous.": "error",
    "\"addmm_impl_cpu_\" not implemented for 'Half'": "unsupported",
    "float8 is not supported by this layer": "unsupported",
    "the module's own misaligned address": "error",
}


@pytest.mark.parametrize(("text", "status"), TEXTS.items())
def test_the_status_of_a_runtime_error(text: str, status: str) -> None:
    advice = "CUDA kernel errors might be asynchronously reported at some other API call."
    failure = describe_failure(RuntimeError(f"{text}\n{advice}"))
    assert failure.status == status
    assert text in failure.message
    assert advice not in failure.message
    assert advice in failure.traceback


def test_the_type_of_an_error_says_more_than_its_text() -> None:
    assert describe_failure(torch.OutOfMemoryError("no text that is known")).status == "oom"
    assert describe_failure(NotImplementedError("CUDA error: this is not supported")).status == "unsupported"
    assert describe_failure(Unsupported("no CUDA error at all")).status == "unsupported"
    assert describe_failure(DoesNotFit("predicted peak 9 GiB")).status == "oom"
    assert describe_failure(NotFinite("the output holds NaN")).status == "nan"


def test_a_gpu_error_is_found_in_the_text_of_the_error_around_it() -> None:
    inner = RuntimeError("CUDA error: misaligned address\nCompile with `TORCH_USE_CUDA_DSA`.")
    assert describe_failure(ModuleCodeError("m.py", inner)).status == "crashed"
    assert describe_failure(RuntimeError(f"backend='inductor' raised:\n{inner}")).status == "crashed"


NO_ROOM = {
    "CUDA out of memory. Tried to allocate 2.00 GiB": True,
    "CUDA error: out of memory": True,
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": True,
    "CUDA error: all CUDA-capable devices are busy or unavailable": True,
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable": True,
    "DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes": False,
    "CUDA error: misaligned address": False,
}


@pytest.mark.parametrize(("text", "no_room"), NO_ROOM.items())
def test_whether_the_gpu_had_no_room(text: str, no_room: bool) -> None:
    assert describe_failure(RuntimeError(text)).no_gpu_room == no_room


def test_a_normalisation_of_one_value_is_told_the_batch_that_it_needs() -> None:
    with pytest.raises(ValueError, match="more than 1 value") as caught:
        torch.nn.BatchNorm2d(8)(torch.zeros(1, 8, 1, 1))
    size = "got input size torch.Size([1, 8, 1, 1]); a batch of 2 images has more (test_failures.py, line "
    assert size in describe_failure(caught.value).message


def test_an_operator_that_a_device_lacks_is_told_in_one_sentence() -> None:
    q = torch.zeros(1, 4, 2, 8)
    with pytest.raises(NotImplementedError) as caught:
        torch.ops.aten._efficient_attention_forward(q, q, q, None, None, None, None, None, 0.0, 0, True)
    told = describe_failure(caught.value)
    assert told.status == "unsupported"
    lacks = "Could not run 'aten::_efficient_attention_forward' with arguments from the 'CPU' backend."
    assert told.message.startswith(f"{lacks} (test_failures.py, line ")
    assert "Facebook" in told.traceback


PACKAGES = {
    "block": """from helper import divided

def forward(x):
    assert x >= 0
    return divided(x)
""",
    "helper": """class HelperError(RuntimeError):
    pass

def divided(x):
    raise HelperError("while dividing\\n the input is %d\\n it is no multiple of 7" % x)
""",
}


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (32, "HelperError: while dividing the input is 32 it is no multiple of 7 (block.py, line 5, in forward)"),
        (-1, "AssertionError: assert x >= 0 (block.py, line 4, in forward)"),
    ],
)
def test_an_error_of_packages_is_told_whole_at_the_line_of_the_one_whose_block_it_is(
    x: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    for name, text in PACKAGES.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("" if name == "block" else text)
    (folder / "block" / "block.py").write_text(PACKAGES["block"])
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        importlib.import_module("block.block").forward(x)
    # The test's own frame would be a person's own code.
    error = caught.value.with_traceback(caught.value.__traceback__ and caught.value.__traceback__.tb_next)
    assert describe_failure(error).message == sentence
