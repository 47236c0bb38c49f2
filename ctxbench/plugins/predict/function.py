"""`ctxbench.predict_time`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.base.dtypes import TF32, TF32_CONVOLUTIONS
from ctxbench.base.number import Number
from ctxbench.engine.isolated import IsolatedLoader, KeptAnswers
from ctxbench.model.conditions import OneShape
from ctxbench.plugins.memory.step import LOSSES, check_step
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


def predict_time(
    module: "Module",
    shape: OneShape | None,
    target: str,
    *,
    dtype: str | None = None,
    memory_format: str | None = None,
    network: str | None = None,
    mode: str = "train",
    loss: str = LOSSES[0],
    optimizer: str = "",
    hparams: Mapping[str, Any] | None = None,
) -> Result[Number]:
    """Predict the time of a module's pass on a device that is not here. Nothing is measured.

    Args:
        module: A name (a key, `path.py:Class`, `package.module:Class`), a class, a function of the number of channels,
            or an instance.
        shape: Input shape (B, C, H, W); None: 1, 512, 128, 128, or the network's own.
        target: Such as a100-40gb, or a TOML file.
        dtype: Of weights and input, such as `bfloat16`, or `autocast-float16`; default: PyTorch's own, which is
            tf32-convolutions on a device with TF32, and float32 elsewhere.
        memory_format: contiguous or channels_last; default: contiguous.
        network: A network, or `path.py:function`, into which the module is put; default: the module alone.
        mode: train or infer.
        loss: Of a training step: sum, cross-entropy of the output.
        optimizer: Add its step: sgd, adamw.
        hparams: Hyper-parameters by name, such as `{"steps": 3}`.

    Returns:
        The time in ms with its 80 % band, `low` to `high`; the operators are in `tables`.

    Raises:
        UsageError: For a wrong argument, and for a pass that cannot be predicted.

    Example:
        >>> time = ctxbench.predict_time("se", (1, 64, 32, 32), "t4").value
        >>> 0 < time.low < time.value < time.high
        True
    """
    check_step(mode, loss, optimizer)
    device = sheet(target)
    dtype = dtype or (TF32_CONVOLUTIONS if TF32 in device.peak_tflops else None)
    with IsolatedLoader() as loader:
        case = api.case_of(module, hparams, shape=shape, dtype=dtype, memory_format=memory_format, network=network)
        # a prediction for a CPU is for the kernels of the one at hand
        keep: KeptAnswers = "here" if device.backend == "cpu" else "always"
        return api.number(loader, case, "time", mode, target, device, loss, optimizer, keep=keep)
