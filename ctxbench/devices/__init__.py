"""Devices, one kind a file: clock, synchronising, flags, free memory, state, energy. The rest asks it.

Imports no torch until a device is used, so that the parent can ask for names and counts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ctxbench.base.errors import UsageError, unknown
from ctxbench.devices.base import Device, NotMeasurable, Unsupported
from ctxbench.devices.cpu import Cpu
from ctxbench.devices.cuda import Cuda
from ctxbench.plugin import loaded

if TYPE_CHECKING:
    from ctxbench.table.table import Table

__all__ = [
    "KINDS",
    "META",
    "Device",
    "NotMeasurable",
    "Unsupported",
    "auto",
    "check",
    "device",
    "fingerprint",
    "has_clock",
    "present",
    "product",
    "seen",
    "sheet_of",
    "sheets",
]

# In the order in which `auto` chooses.
KINDS: dict[str, type[Device]] = {kind.kind: kind for kind in (Cuda, Cpu)}
# Stands for no device: static metrics alone.
META = "meta"


def device(name: str) -> Device:
    """The device `cpu`, `cuda` or `cuda:N`. UsageError for any other name."""
    kind, colon, index = name.partition(":")
    if kind not in KINDS or (colon and not re.fullmatch("[0-9]{1,9}", index)):
        raise unknown("device", name, KINDS)
    return KINDS[kind](int(index) if index else None)


def has_clock(name: str) -> bool:
    """True if times are measured on a device of this name: not on one known by its data sheet, nor on none."""
    return name.partition(":")[0] in KINDS


class KnownDevice(Protocol):
    """A device that is known without being here: by its data sheet, which a run keeps."""

    title: str
    backend: Literal["cuda", "cpu"]
    memory_gib: float | None
    l2_mib: float

    @property
    def bandwidth(self) -> float: ...

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


class Catalogue(Protocol):
    """Catalogue of devices that are not here: names, the device of a name or of a file `NAME.toml`, and their table."""

    def names(self) -> Iterable[str]: ...

    def device(self, name: str) -> KnownDevice: ...

    def table(self) -> "Table": ...


def known() -> dict[str, Catalogue]:
    """The names of devices that are known without being here, and what knows each."""
    catalogues: list[Catalogue] = loaded("devices")
    return {name: each for each in catalogues for name in each.names()}


def sheets(names: Iterable[str]) -> dict[str, KnownDevice]:
    """The data sheets of those of these devices that have no clock. UsageError for an unknown device."""
    found = {}
    for name in names:
        if name == META or has_clock(name):
            continue
        catalogues = known()
        reader = catalogues.get(name) or next(iter(loaded("devices") if ".toml" in name else ()), None)
        if reader is None:
            raise unknown("device", name, [*KINDS, *catalogues])
        found[name] = reader.device(name)
    return found


def sheet_of(here: Device) -> KnownDevice | None:
    """The data sheet of a device that is here, by the name under which it is sold; None if there is none."""
    title = here.product(here.fingerprint())
    catalogues: list[Catalogue] = loaded("devices")
    return next(
        (found for each in catalogues for name in each.names() if (found := each.device(name)).title == title), None
    )


def check(name: str, environment: Mapping[str, Any]) -> None:
    """UsageError unless `environment` (see `ctxbench.results.environment`) has the device, or it needs none."""
    if name == META or sheets([name]):
        return
    found = device(name)
    count = found.count(environment)
    if not count:
        raise UsageError(
            f"device {found.kind!r} was asked for, but {seen(name, environment)}; use --device cpu or --static"
        )
    if not present(name, environment):
        raise UsageError(f"device {name!r} was asked for, but {seen(name, environment)}")


def present(name: str, environment: Mapping[str, Any]) -> bool:
    """Return whether an environment has the device; no device (`meta`) and data sheets are everywhere."""
    return not has_clock(name) or (device(name).index or 0) < device(name).count(environment)


def seen(name: str, environment: Mapping[str, Any]) -> str:
    """Number of devices of this kind in an environment, as a clause; for none, the reason."""
    count = device(name).count(environment)
    if count:
        return f"torch sees {count} GPU(s)"
    cuda = (environment.get("torch_build") or {}).get("cuda")
    if not cuda:
        return "torch sees no GPU here"
    if not environment.get("driver"):
        return f"torch was built with CUDA {cuda}, but no driver answers"
    visible = environment.get("cuda_visible_devices")
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
    return f"torch was built with CUDA {cuda}, but: {environment.get('cuda_error', 'it sees no GPU')}{hidden}"


def auto(environment: Mapping[str, Any]) -> str:
    """The device that `auto` stands for: the first kind that `environment` has."""
    return next(kind for kind, cls in KINDS.items() if cls.count(environment))


def product(name: str, environment: Mapping[str, Any]) -> str:
    """The product behind a device's name; the name itself where the environment does not tell."""
    if name == META:
        return "no device (static figures)"
    try:
        found = device(name)
    except UsageError:
        return name
    return found.product(environment) or name


def fingerprint() -> dict[str, Any]:
    """Fingerprint of every kind of device, for `run.json`. May initialise a driver."""
    return {name: value for kind in KINDS.values() for name, value in kind.fingerprint().items()}
