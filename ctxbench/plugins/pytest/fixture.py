"""The pytest fixture `ctxbench_case`. Loaded in every pytest run: it imports nothing heavy until a test asks for it."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ctxbench.model.case import Case

# What differs between two runs on one machine: pytest-benchmark warns when machine_info does.
CHANGING = ("time", "load_average", "commit")


@dataclass(frozen=True)
class BenchmarkCase:
    """One pass of a module as a function, and what `ctxbench check --baseline` compares.

    `extra_info`: the case's id and fields, `mode`, `params`, `macs`, `memory_<mode>_predicted_bytes` with the target
    that it is predicted for.
    """

    step: Callable[[], object]
    extra_info: dict[str, Any]


@pytest.fixture
def ctxbench_case() -> Iterator[Callable[..., BenchmarkCase]]:
    """A function that prepares one pass of a module for pytest-benchmark (or any other clock).

    `ctxbench_case(module, shape=(B, C, H, W), mode="infer", dtype="float32", device="cpu", threads=1, **hparams)`:
    `module` is a registered key, `path.py:Class` (from the working folder) or `package.module:Class`; `mode` is
    `infer` or `train`; `threads` None leaves torch's default. The first pass has been run and its output checked. On
    CUDA a step ends when the device has done its work. A wrong argument fails the test with a sentence; an exception
    of the module's own is passed on. torch's threads and flags are as before once the test is over.
    """
    from ctxbench.base.errors import UsageError
    from ctxbench.devices import Unsupported
    from ctxbench.model.failures import NotFinite

    def prepare(
        module: str,
        shape: Sequence[int] = (1, 64, 32, 32),
        mode: str = "infer",
        dtype: str = "float32",
        device: str = "cpu",
        threads: int | None = 1,
        **hparams: Any,
    ) -> BenchmarkCase:
        try:
            case = _case(module, shape, mode, dtype, device, threads, hparams)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _prepare(case, mode)
        except (UsageError, NotFinite, Unsupported) as error:
            sentence = str(error)
        pytest.fail(sentence, pytrace=False)

    with _settings_kept():
        yield prepare


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Say in pytest-benchmark's JSON what a run folder says of the machine, if ctxbench measured anything."""
    if "ctxbench.worker.measurement" in sys.modules:
        from ctxbench.results import environment

        known = environment.describe()
        machine_info["ctxbench"] = {name: value for name, value in known.items() if name not in CHANGING}


@contextmanager
def _settings_kept() -> Iterator[None]:
    """Set torch's threads and flags, which are the whole process's, back to what they were."""
    import torch

    threads_before, products_before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    cudnn: Any = torch.backends.cudnn
    cudnn_before = {"_allow_tf32": cudnn.allow_tf32, "_benchmark": cudnn.benchmark, "_fp32_precision": None}
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        torch.backends.cuda.matmul.allow_tf32 = products_before
        cudnn.set_flags(**cudnn_before)


def _case(
    module: str, shape: Sequence[int], mode: str, dtype: str, device: str, threads: int | None, hparams: dict[str, Any]
) -> "Case":
    from ctxbench import devices, registry
    from ctxbench.base.errors import UsageError, unknown
    from ctxbench.base.mode import MODES
    from ctxbench.model.case import Case
    from ctxbench.model.conditions import CONDITIONS, parse_shape
    from ctxbench.registry.reference import Reference
    from ctxbench.results import environment

    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    CONDITIONS["dtype"].checked(dtype)
    devices.check(device, environment.describe() if device != "cpu" else {})
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; it is at least 1, or None for torch's default")
    entry = registry.get(module)
    return Case(
        entry.key,
        entry.reference if Reference.parse(module).is_key else module,
        entry.check_hparams(hparams),
        parse_shape(shape),
        dtype=dtype,
        device=device,
        threads=threads,
    )


def _prepare(case: "Case", mode: Any) -> BenchmarkCase:
    from ctxbench.devices import META
    from ctxbench.engine.in_process import InProcess
    from ctxbench.engine.one_process import Plan, measure_case
    from ctxbench.model.case import Measure
    from ctxbench.model.metrics import static_metrics
    from ctxbench.worker.measurement import CaseMeasurement

    record = measure_case(replace(case, device=META), Plan(Measure(), static_metrics()), InProcess()).record
    measurement = CaseMeasurement(case, Measure(), lambda message: None, force=True)
    measurement.load()
    step = measurement.first_pass(mode).step
    kept = ("params", "macs", "macs_counter", f"memory_{mode}_predicted_bytes", "memory_predicted_for")
    known = {name: record.get(name) for name in kept}

    def synchronized() -> object:
        y = step()
        measurement.device.synchronize()
        return y

    return BenchmarkCase(synchronized, {"case": case.id, **asdict(case), "mode": mode, **known})
