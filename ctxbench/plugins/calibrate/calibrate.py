"""A file that stands for a device in predictions: its data sheet, and kernels that were measured on it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from ctxbench import devices
from ctxbench.base.errors import UsageError
from ctxbench.base.load import CONTROL_LIMIT, ON_CORE_LIMIT, OTHERS_LIMIT, starved
from ctxbench.base.number import significant
from ctxbench.engine.remote import ask
from ctxbench.model.failures import last_line
from ctxbench.plugins.calibrate.wire import CONTROL, GpuProperties, KernelTime
from ctxbench.plugins.predict.sheet import Instructions, by_title, sheet

if TYPE_CHECKING:
    from ctxbench.engine.client import ForkServer

# Seconds after which a device that does not answer is given up.
LIMIT_S = 300.0
# The host's time to start an operator on a GPU, over that of a small operator on the CPU, where no GPU can be asked.
# Assumed: a small addition takes a server's processor 2 us, and launch-bound networks 10 to 19 us an operator.
GPU_OVER_CPU = 8.0
# float32 cores of a multiprocessor by compute capability, 128 where it is not listed (CUDA C++ Programming Guide).
_CORES = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
SMALL = "small 200"


def calibrate(
    name: str,
    threads: int | None,
    environment: Mapping[str, Any],
    server: "ForkServer",
    on_kernel: Callable[[str, float], None],
) -> dict[str, Any]:
    """The content of a device's file: `cpu`, `cuda` and `cuda:N` are measured; of a data sheet's name, the host alone.

    UsageError for a machine that is busy or throttled meanwhile.
    """
    from ctxbench.plugins.predict.probes import KERNELS, LAYERS, TRAINED_LAYERS

    kind = name.partition(":")[0]
    if not devices.has_clock(name):
        known = sheet(name).model_dump(exclude_none=True, exclude_defaults=True)
        times, _ = _times("cpu", 1, [SMALL], server, on_kernel)
        host_us = _per_operator_us(times) * GPU_OVER_CPU
        source = {f"this host's small operator, {_per_operator_us(times):.3g} us, times {GPU_OVER_CPU:g}": ["host_us"]}
        return {**known, "host_us": _rounded(host_us), "source": {**known.get("source", {}), **source}}
    devices.check(name, environment)
    product, count = devices.product(name, environment), threads or int(environment["torch_threads"])
    times, properties = _times(name, threads, KERNELS[kind], server, on_kernel)
    figures = _cpu(environment, count, times) if kind == "cpu" else _gpu(product, properties)
    kernels_ms = {kernel: _rounded(ms) for kernel, ms in times.items() if kernel not in (SMALL, LAYERS, TRAINED_LAYERS)}
    return {**figures, "host_us": _rounded(_per_operator_us(times, LAYERS)), "kernels_ms": kernels_ms}


def _times(
    name: str,
    threads: int | None,
    kernels: Sequence[str],
    server: "ForkServer",
    on_kernel: Callable[[str, float], None],
) -> tuple[dict[str, float], Mapping[str, int]]:
    """Milliseconds of each kernel, and the properties of a GPU.

    UsageError if other work disturbed a kernel, or if a control workload took another time after them than before.
    """
    times: dict[str, float] = {}
    controls: list[float] = []
    properties: dict[str, int] = {}

    def take(message: KernelTime | GpuProperties) -> None:
        match message:
            case KernelTime(kernel, _, others_share, on_core) if starved(others_share, on_core):
                raise UsageError(_busy(name, kernel, others_share, on_core))
            case KernelTime(kernel, ms) if kernel == CONTROL:
                controls.append(ms)
            case KernelTime(kernel, ms):
                times[kernel] = ms
                on_kernel(kernel, ms)
            case GpuProperties(values, others):
                properties.update(values)
                if others:
                    raise UsageError(
                        f"{name} is shared with processes {', '.join(map(str, others))}: end them, then try again"
                    )

    kind = KernelTime | GpuProperties
    ended = ask(server, "kernels", kind, name, threads, [*kernels], on_told=take, timeout_s=LIMIT_S).ended
    if len(controls) < 2:
        why = f"it did not end within {LIMIT_S:g} s" if ended.timed_out else last_line(ended.output)
        raise UsageError(f"the kernels could not be measured on {name}: {why}")
    low, high = sorted(controls)
    if high / low > CONTROL_LIMIT:
        raise UsageError(
            f"{name} was not idle: a control workload before and after the kernels took {significant(low)} to "
            f"{significant(high)} ms, more than {CONTROL_LIMIT:g} times apart, so nothing was written. "
            "Other work does this, or a clock that heat or power lowers. Try again on an idle machine"
        )
    return times, properties


def _busy(name: str, kernel: str, others_share: float, on_core: float) -> str:
    return (
        f"{name} is not idle: while {kernel} was measured, other work used {others_share:.0%} of the cores (limit: "
        f"{OTHERS_LIMIT:.0%}) and the measuring thread ran on a core for {on_core:.0%} of the time (at least "
        f"{ON_CORE_LIMIT:.0%} is needed), so nothing was written: end the other work, then try again"
    )


def _per_operator_us(times: Mapping[str, float], kernel: str = SMALL) -> float:
    return times[kernel] * 1e3 / int(kernel.split()[1])


def _cpu(environment: Mapping[str, Any], threads: int, times: Mapping[str, float]) -> dict[str, Any]:
    """A CPU has no data sheet: its peak is that of a large product, its bandwidth that of an addition in its caches."""
    import torch

    from ctxbench.plugins.predict.operators import operators_of
    from ctxbench.plugins.predict.passes import calls_of
    from ctxbench.plugins.predict.probes import SMALL_MAP, TRAINED_LAYERS, small_layers

    layers = small_layers(int(TRAINED_LAYERS.split()[-1])).to("meta")
    step = operators_of(layers, torch.empty(SMALL_MAP, device="meta"), mode="train", device="cpu")
    # oneDNN's own cap, such as AVX512_CORE, else what PyTorch found
    widest = str(environment.get("onednn_max_isa") or environment.get("cpu_capability")).upper().partition("_")[0]
    side, numbers = 1024, 2097152
    return {
        "title": f"{environment['cpu']}, {threads} thread{'s' * (threads > 1)}",
        "backend": "cpu",
        "peak_tflops": {"float32": _rounded(2 * side**3 / times[f"product 1 {side} {side} {side}"] / 1e9)},
        "bandwidth_gb_s": _rounded(3 * 4 * numbers / times[f"add {numbers}"] / 1e6),
        "l2_mib": 1,
        "processors": threads,
        "launch_us": _rounded(_per_operator_us(times)),
        "train_us": _rounded(1e3 * times[TRAINED_LAYERS] / calls_of(step)),
        **({"instructions": widest} if widest in get_args(Instructions) else {}),
        "source": {
            "measured by ctxbench calibrate": ["peak_tflops", "bandwidth_gb_s", "launch_us", "host_us", "train_us"]
        },
    }


def _gpu(product: str, properties: Mapping[str, int]) -> dict[str, Any]:
    """The data sheet of this product; of one that has none here, what the driver tells. UsageError for an old torch."""
    known = by_title(product)
    if known is not None:
        return known.model_dump(exclude_none=True, exclude_defaults=True)
    if not all(properties.values()):
        missing = [name for name, value in properties.items() if not value]
        raise UsageError(
            f"ctxbench has no data sheet of {product}, and torch does not tell its {', '.join(missing)}; "
            "docs/plugins/predict.md says how to write a data sheet"
        )
    processors = properties["multi_processor_count"]
    cores = processors * _CORES.get((properties["major"], properties["minor"]), 128)
    return {
        "title": product,
        "peak_tflops": {"float32": _rounded(2 * cores * properties["clock_rate"] / 1e9)},
        # Two transfers a clock
        "bandwidth_gb_s": _rounded(2 * properties["memory_clock_rate"] * properties["memory_bus_width"] / 8 / 1e6),
        "l2_mib": _rounded(properties["L2_cache_size"] / 2**20),
        "processors": processors,
        "source": {"the driver's properties": ["peak_tflops", "bandwidth_gb_s", "l2_mib", "processors"]},
    }


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def text_of(name: str, content: Mapping[str, Any]) -> str:
    """The file's text: one table in TOML, and one each for kernels and sources. Its values are the same in JSON."""
    plain = {key: value for key, value in content.items() if key not in ("kernels_ms", "source", "peak_tflops")}
    lines = [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
    for part in ("peak_tflops", "kernels_ms", "source"):
        if own := content.get(part):
            lines += [
                "",
                f"[{name}.{part}]",
                *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in own.items()),
            ]
    return "\n".join(lines) + "\n"
