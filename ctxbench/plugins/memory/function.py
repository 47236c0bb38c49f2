"""`ctxbench.predict_memory`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api, devices
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.number import Number
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.conditions import OneShape
from ctxbench.plugins.memory.step import LOSSES, check_step
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module

# What a peak is predicted for.
TARGETS = ("cuda", "cuda-2020", "cpu")
# A peak above this share of a card's memory may not fit: ECC, the driver and CUDA's context take a part.
SURE_SHARE = 0.9
# Workspaces of cuBLAS, on compute capability 9.0: the forward pass's thread and autograd's. Others have a quarter.
CUBLAS_BYTES = 2 * 32 * 2**20


def predict_memory(
    module: "Module",
    shape: OneShape | None = None,
    *,
    dtype: str | None = None,
    memory_format: str | None = None,
    network: str | None = None,
    mode: str = "train",
    target: str = "cuda",
    loss: str = LOSSES[0],
    optimizer: str = "",
    batch: str = "",
    hparams: Mapping[str, Any] | None = None,
    plot: str | Path | None = None,
) -> Result[Number]:
    """Predict the peak memory of a module's pass or training step, and what would lower it. Nothing is measured.

    Args:
        module: A name (a key, `path.py:Class`, `package.module:Class`), a class, a function of the number of channels,
            or an instance.
        shape: Input shape (B, C, H, W); default: 1, 512, 128, 128, or the network's own.
        dtype: Of weights and input, such as `bfloat16`, or `autocast-float16`; default: float32.
        memory_format: contiguous or channels_last; default: contiguous.
        network: A network, or `path.py:function`, into which the module is put; default: the module alone.
        mode: train or infer.
        target: cuda, cuda-2020, cpu, or a card such as a100-40gb: also whether the peak fits it.
        loss: Of a training step: sum, cross-entropy of the output.
        optimizer: Add its state and its step: sgd, adamw.
        batch: auto: the largest batch that fits the card, instead of that of `shape`.
        hparams: Hyper-parameters by name, such as `{"steps": 3}`.
        plot: Draw the memory in use over the pass into this .png or .svg.

    Returns:
        The peak in bytes; the blocks at the peak are in `tables`.

    Raises:
        UsageError: For a wrong argument, and for a pass that cannot be predicted.

    Example:
        >>> ctxbench.predict_memory("se", (1, 64, 32, 32), mode="infer").value.value
        265728.0
    """
    check_step(mode, loss, optimizer)
    card = None if target in TARGETS else _card(target)
    room = _room(batch, card)
    path = None if plot is None else str(Path(plot).absolute())
    with IsolatedLoader() as loader:
        case = api.case_of(module, hparams, shape=shape, dtype=dtype, memory_format=memory_format, network=network)
        backend = card.backend if card else target
        # a prediction for a CPU is for the kernels of the one at hand, for a card by the libraries, a drawing is a file
        keep = backend != "cpu" and card is None and path is None
        asked = (mode, backend, path, loss, optimizer, room, target if card else "")
        found = api.number(loader, case, "memory", *asked, keep=keep)
    if card is None:
        return found
    lines = (_fits(card, found.value.value), *_beside(card.backend, optimizer))
    return replace(found, parts=(found.parts[0], *lines, *found.parts[1:]))


def _card(name: str) -> devices.KnownDevice:
    """The device of a data sheet. UsageError for an unknown name."""
    if not name.endswith(".toml") and ".toml:" not in name and name not in devices.known():
        raise unknown("device", name, [*TARGETS, *devices.known()])
    return devices.sheets([name])[name]


def _room(batch: str, card: devices.KnownDevice | None) -> float | None:
    """The bytes that a step may take if the largest batch is asked for. UsageError without a card of known memory."""
    if not batch:
        return None
    if batch != "auto":
        raise UsageError(f"batch is {batch!r}; it may be auto. A number is the first of --shape")
    if card is None or card.memory_gib is None:
        raise UsageError("--batch auto asks what fits a card: add --for a100-40gb, or another card of known memory")
    return SURE_SHARE * card.memory_gib * 2**30 - (CUBLAS_BYTES if card.backend == "cuda" else 0)


def _fits(card: devices.KnownDevice, peak: float) -> str:
    """Sentence on whether a peak in bytes fits the memory of a device."""
    if card.memory_gib is None:
        return f"- The data sheet of {card.title} has no memory_gib: whether the peak fits is not known."
    size = card.memory_gib * 2**30
    fits = "it does not fit" if peak > size else "it may not fit" if peak > SURE_SHARE * size else "it fits"
    predicted = "Its blocks are predicted for CUDA from compute capability 8.0 on, not for one card."
    return f"- {card.title} has {size / 2**20:,.0f} MiB: {fits}. {predicted}"


def _beside(backend: str, optimizer: str) -> Iterator[str]:
    """Sentences on what the peak does not hold."""
    if backend != "cuda":
        return
    yield (
        f"- Workspaces beside the peak: up to {CUBLAS_BYTES / 2**20:,.0f} MiB of cuBLAS, for two threads (PyTorch's "
        "cuda/CublasHandlePool.cpp); those of other libraries are below."
    )
    yield (
        f"- CUDA's context beside the peak: not predicted, it depends on the driver; {1 - SURE_SHARE:.0%} of the card "
        "is left for it and for ECC (assumed)."
    )
    if not optimizer:
        yield "- An optimizer's state comes on top: --optimizer adamw counts it."
