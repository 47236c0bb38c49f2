"""A device known by its data sheet: in `sheets.toml`, or in a user's own file in the same form.

The time of a case on it is predicted, never measured. `ctxbench calibrate` writes such a file, with kernels that were
measured on the device itself.
"""

import math
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ctxbench.base import disk
from ctxbench.base.errors import UsageError, unknown

PeakDtype = Literal["float64", "float32", "tf32", "float16", "bfloat16"]
Instructions = Literal["AVX2", "AVX512"]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class DeviceSpec(BaseModel):
    """One device: dense peaks in 10^12 FLOP/s by dtype, bandwidth in 10^9 bytes/s, memory in GiB, L2 in MiB, watts.

    `processors` are streaming multiprocessors, of a CPU its threads. `source` names the document of each figure.
    `kernels_ms` are the times of calibration kernels by name (see `ctxbench.plugins.predict.probes`), `host_us` and
    `launch_us` the host's time for an operator and the device's between two kernels, where they were measured. On a CPU
    they are what an operator takes beside its arithmetic in a layer, and alone; `train_us` is that of a training step,
    and `instructions` the widest that oneDNN uses.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    peak_tflops: dict[PeakDtype, PositiveNumber]
    bandwidth_gb_s: PositiveNumber
    memory_gib: PositiveNumber | None = None
    l2_mib: PositiveNumber
    power_w: PositiveNumber | None = None
    processors: Annotated[int, Field(gt=0)]
    source: dict[str, list[str]] = {}
    backend: Literal["cuda", "cpu"] = "cuda"
    host_us: PositiveNumber | None = None
    launch_us: PositiveNumber | None = None
    train_us: PositiveNumber | None = None
    instructions: Instructions | None = None
    kernels_ms: dict[str, PositiveNumber] = {}

    def peak(self, dtype: str) -> float:
        """FLOP/s in a dtype. UsageError if the device has no unit for it."""
        found = self.peak_tflops.get(dtype)  # type: ignore[call-overload]  # any text may be asked for
        if found is None:
            raise UsageError(f"{self.title} has no unit for {dtype}; its peaks are of {', '.join(self.peak_tflops)}")
        return float(found) * 1e12

    @property
    def bandwidth(self) -> float:
        """Bytes/s."""
        return self.bandwidth_gb_s * 1e9

    @property
    def launch_s(self) -> float:
        """Seconds of the device between two kernels of a queue: 3 us is assumed."""
        return (self.launch_us or 3.0) / 1e6

    @property
    def has_tensor_cores(self) -> bool:
        """By the peaks: TF32 is of tensor cores alone, and other units are at most twice as fast in float16."""
        return "tf32" in self.peak_tflops or self.peak_tflops.get("float16", 0) > 2.5 * self.peak_tflops["float32"]

    @property
    def is_hopper(self) -> bool:
        """Return whether it is a card of NVIDIA's Hopper architecture, by the driver's name of it."""
        return self.title.startswith(("NVIDIA H100", "NVIDIA H200"))

    def watts_per_tflops(self, dtype: str) -> float:
        """The board's power over its peak in a dtype: what limits the clock; infinite if it is not known.

        The peaks of tensor cores in TF32 and in float16 take the same power, so that of float16 stands for both; that
        of float32 stands for float64.
        """
        unit = {"tf32": "float16", "float64": "float32"}.get(dtype, dtype)
        unit = unit if unit in self.peak_tflops else dtype
        return self.power_w / (self.peak(unit) / 1e12) if self.power_w else math.inf


@cache
def sheets() -> dict[str, DeviceSpec]:
    """The devices that ctxbench knows, by name."""
    return _read(Path(str(files("ctxbench.plugins.predict") / "sheets.toml")))


def sheet(name: str) -> DeviceSpec:
    """The data sheet of a device: a name, or `file.toml` with one device, or `file.toml:name`.

    UsageError for an unknown name, with the nearest one, and for a file that holds no sheet.
    """
    path, _, chosen = name.partition(".toml:") if ".toml:" in name else (name, "", "")
    if not chosen and not name.endswith(".toml"):
        if name not in sheets():
            raise unknown("device", name, sheets())
        return sheets()[name]
    path = path.removesuffix(".toml") + ".toml"
    found = _read(Path(path))
    if chosen and chosen not in found:
        raise unknown(f"device of {path}", chosen, found)
    if not chosen and len(found) != 1:
        raise UsageError(f"{path} has {len(found)} devices; name one, such as {path}:{next(iter(found), 'NAME')}")
    return found[chosen] if chosen else next(iter(found.values()))


def by_title(title: str) -> DeviceSpec | None:
    """The device of this product name, as drivers and suites write it; None if there is none."""
    return next((each for each in sheets().values() if each.title == title), None)


def _read(path: Path) -> dict[str, DeviceSpec]:
    return {name: _checked(name, values, path) for name, values in disk.read_toml(path).items()}


def _checked(name: str, values: Any, path: Path) -> DeviceSpec:
    try:
        found = DeviceSpec.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])).removesuffix(".[key]")
        if problem["type"] == "missing":
            raise UsageError(f"{path}: [{name}] lacks {key}") from None
        if problem["type"] == "extra_forbidden":
            raise UsageError(f"{path}: [{name}]: {unknown('key', key, DeviceSpec.model_fields)}") from None
        message = problem["msg"][0].lower() + problem["msg"][1:]
        raise UsageError(f"{path}: [{name}]: {key} is {problem['input']!r}: {message}") from None
    if "float32" not in found.peak_tflops:
        raise UsageError(f"{path}: [{name}] lacks peak_tflops.float32")
    return found
