"""`ctxbench.choose`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxbench import api
from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES
from ctxbench.devices import has_clock
from ctxbench.engine.cache import CachedExecutor
from ctxbench.engine.client import ForkServer
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.engine.progress import Quiet
from ctxbench.model.conditions import Names, OneShape
from ctxbench.plugins.choose import choice
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.results.plan import check_installed
from ctxbench.table.result import Result

if TYPE_CHECKING:
    from ctxbench.api import Module


def choose(
    shape: OneShape | None,
    device: Names,
    memory: int | None = None,
    *,
    at: str | None = None,
    imgsz: int | None = None,
    within_ms: float | None = None,
    network: Names | None = None,
    dtype: Names | None = None,
    mode: str = "train",
    modules: "Sequence[Module] | Module | None" = None,
    hparams: Mapping[str, Mapping[str, Any]] | None = None,
    largest_batch: bool = False,
    local: str = "yes",
    progress: Quiet | None = None,
) -> Result[list[choice.Candidate]]:
    """Find the modules that fit into a memory at an input, the fastest first. All is predicted; nothing is measured.

    Args:
        shape: Input shape (B, C, H, W); None with `at`.
        device: Devices with a data sheet, such as `a100-40gb`, or TOML files, one or several.
        memory: Available memory, in bytes; default: that of the device with the least.
        at: A place of a network instead of a shape, such as `yolo11n:P5`, as `ctxbench.compare` takes it.
        imgsz: Side in pixels of the image that the network of `at` gets; default: 640.
        within_ms: Available time, in ms: a block fits if its whole band is within it on all devices.
        network, dtype: One value of each condition, or several.
        mode: train or infer.
        modules: Names (keys, `path.py:Class`, `package.module:Class`), classes, functions of the number of channels, or
            instances; default: those of the registry.
        hparams: Hyper-parameters by module, such as `{"ham_nmf": {"steps": 3}}`.
        largest_batch: Also the largest batch that fits.
        local: yes, or no to leave out blocks that see a window alone.
        progress: Gets the progress.

    Returns:
        Each module with its predicted peak in bytes and its times in ms; those that fit are in `tables`.

    Raises:
        UsageError: For a wrong argument, for a device whose times are measured, and, without `memory`, for one
            whose data sheet has none.

    Example:
        >>> found = ctxbench.choose((1, 32, 4, 4), "t4", modules=["linear", "se"])
        >>> sorted(each.case.module for each in found.value)
        ['linear', 'se']
    """
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    if local not in ("yes", "no"):
        raise unknown("local", local, ("yes", "no"))
    devices = list(dict.fromkeys([device] if isinstance(device, str) else device))
    for name in devices or [""]:
        if has_clock(name):
            raise UsageError(
                f"device {name}: choose measures nothing. It takes a data sheet (ctxbench list --devices), or what "
                f"ctxbench calibrate --device {name} --out here.toml writes"
            )
        sheet(name)
    limit, owner = (memory, "") if memory is not None else _least_memory(devices)
    if (at is None) == (shape is None):
        raise UsageError("name the input either by --shape, such as 1,512,64,64, or by --at, such as yolo11n:P5")
    if within_ms is not None and not within_ms > 0:
        raise UsageError(f"--within-ms {within_ms:g} is no time in ms, such as 0.5")
    places, _ = api.inputs_at(at, imgsz)
    names = {given: place for place, given in places.items()}
    with IsolatedLoader():
        suite = api.suite_of(
            "field",
            modules=modules or ["*"],
            hparams=hparams,
            network=network,
            shape=shape if at is None else list(places.values()),
            dtype=dtype,
            device=devices,
        )
    check_installed(suite.file, static=True)
    with progress or Quiet() as shown, ForkServer() as server:
        executor, found = CachedExecutor(server), []
        cases = [case for case in suite.cases() if local == "yes" or not choice.local_of(case)]
        for each in choice.candidates(cases, mode, suite.file.measure, executor, shown):
            each = replace(each, place=names.get(each.case.shape, ""), slow=choice.above(each, within_ms))
            if largest_batch:
                shown.stage(f"the largest batch of {each.case.title}")
                each = replace(
                    each, batch=choice.batch_within(limit, each, devices, mode, suite.file.measure, executor)
                )
            found.append(each)
    return Result(found, tuple(choice.answer(found, limit, devices, mode, owner, within_ms)))


def _least_memory(devices: Sequence[str]) -> tuple[int, str]:
    """Bytes of the device with the least memory, and its name. UsageError where a data sheet does not tell them."""
    found = []
    for name in devices:
        size = sheet(name).memory_gib
        if size is None:
            raise UsageError(
                f"the data sheet of {name} has no memory_gib. Say how much there is: --memory 16GiB (Python: bytes)"
            )
        found.append((int(size * 2**30), name))
    return min(found)
