"""`ctxbench.predict_memory`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench import api, devices
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.number import Number
from ctxbench.engine.isolated import IsolatedLoader, KeptAnswers
from ctxbench.model.conditions import OneShape
from ctxbench.plugins.memory.cards import Card
from ctxbench.plugins.memory.step import LOSSES, check_step
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module

# What a peak is predicted for.
TARGETS = ("cuda", "cuda-2020", "cpu")


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
        # a prediction for a CPU is for the kernels of the one at hand; a drawing is a file, and so may be a sheet
        keep: KeptAnswers = "no" if path or ".toml" in target else "here" if backend == "cpu" else "always"
        return api.number(loader, case, "memory", mode, backend, path, loss, optimizer, room, card, keep=keep)


def _card(name: str) -> Card:
    """The device of a data sheet. UsageError for an unknown name."""
    if not name.endswith(".toml") and ".toml:" not in name and name not in devices.known():
        raise unknown("device", name, [*TARGETS, *devices.known()])
    sheet = devices.sheets([name])[name]
    return Card(name, sheet.title, sheet.backend, sheet.memory_gib)


def _room(batch: str, card: Card | None) -> float | None:
    """The bytes that a step may take if the largest batch is asked for. UsageError without a card of known memory."""
    if not batch:
        return None
    if batch != "auto":
        raise UsageError(f"batch is {batch!r}; it may be auto. A number is the first of --shape")
    if card is None or card.room is None:
        raise UsageError("--batch auto asks what fits a card: add --for a100-40gb, or another card of known memory")
    return card.room
