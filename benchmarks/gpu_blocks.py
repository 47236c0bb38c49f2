"""Steps of gpu.py that go through all blocks in one process: kernels by name, peaks, CUDA graphs and the compiler.

Each has a table with a row, or rows, for each case, written as the case ends; a second call goes on where it stopped.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from expectations import ALL, ExpectedPeak, expected_peaks
from gpu_step import CELLS, DEVICE, LARGE, MEDIUM, REFUSED, CannotRun, Case, Verdict, go_through, read

from ctxbench.base.mode import MODES

if TYPE_CHECKING:
    import torch

KERNEL_COLUMNS = ("kernel", "operator", "calls", "us")
PEAK_COLUMNS = ("predicted_bytes", "measured_bytes", "requested_bytes", "reserved_bytes")
BLOCK_COLUMNS = ("only_in", "bytes", "made_by", "where")
COMPILED_COLUMNS = ("eager_ms", "graph_ms", "compiled_ms", "compile_s")
# Bytes of the table of kernels at most, and of a kernel's name.
MOST_BYTES, NAME = 4 * 2**20, 120
# Of a case whose peak is outside its band: so many blocks, the largest first.
LARGEST = 20
# Seconds at the end of the step `peaks` for the blocks of what is outside its band.
BLOCKS_S = 10.0
TEN = ("sa", "mhsa", "linear", "ham_nmf", "mila", "swin", "se", "lka", "ss2d", "criss_cross")
GRAPH_SHARE = 1.05
# Of a timed block of passes.
BLOCK_S = 0.05


def in_order_of_worth(cases: Sequence[Case]) -> list[Case]:
    """The cases: the large shape and float32 first, float16, which is like bfloat16, last."""
    dtypes = ("float32", "bfloat16", "float16")
    return sorted(cases, key=lambda case: (dtypes.index(case.dtype), case.shape != LARGE))


def measure_kernels(out: Path, deadline: float) -> None:
    go_through(in_order_of_worth(ALL), out / "kernels.csv", CELLS, KERNEL_COLUMNS, kernels_of, deadline)


def kernels_of(case: Case) -> list[tuple[object, ...]]:
    """The GPU's kernels of a pass after two others: name, operator, calls and microseconds, the longest first."""
    from ctxbench.plugins.memory.one_pass import prepared, run_pass
    from ctxbench.plugins.profile.measured import torch_profiler

    with on_device(case) as (module, image), prepared(module, case.mode):

        def step() -> None:
            run_pass(module, (image,), case.mode)
            synchronize()

        step()
        module.zero_grad(set_to_none=True)
        step()
        module.zero_grad(set_to_none=True)
        events, kernels = torch_profiler(DEVICE)(step)
    names = {event.id: event.name for event in events}
    calls, us = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for kernel in kernels:
        key = kernel.name[:NAME], names.get(kernel.by, "")
        calls[key] += 1
        us[key] += kernel.end - kernel.start
    return [(*key, calls[key], f"{ns / 1e3:.2f}") for key, ns in us.most_common()]


def judge_kernels(out: Path) -> Verdict:
    rows = read(out / "kernels.csv")
    if not rows:
        raise CannotRun("no kernel was written")
    cases = {tuple(row[key] for key in CELLS) for row in rows}
    failed = {tuple(row[key] for key in CELLS): row[REFUSED] for row in rows if row[REFUSED]}
    (path,) = out.glob("kernels.csv*")
    size = path.stat().st_size
    expected = expected_peaks()
    # A block without weights trains nothing: it is refused here as it is where peaks are predicted.
    odd = {case: why for case, why in failed.items() if case not in expected or not expected[case].refused}
    seen = f"{len(cases) - len(failed)} of {len(ALL)} cases, {len(rows) - len(failed)} rows, {size / 2**20:.1f} MiB"
    seen += "".join(f"; {' '.join(case)}: {why}" for case, why in [*odd.items()][:3])
    return Verdict(not odd and size <= MOST_BYTES, seen, _left(ALL, cases))


def measure_peaks(out: Path, deadline: float) -> None:
    expected = expected_peaks()

    def rows(case: Case) -> list[tuple[object, ...]]:
        return [(known(case, expected).bytes or "", *peak_of(case))]

    wanted = [case for case in ALL if not known(case, expected).refused]
    go_through(wanted, out / "peaks.csv", CELLS, PEAK_COLUMNS, rows, deadline - BLOCKS_S)
    outside = {tuple(row[key] for key in CELLS) for row in _outside(out, expected)}
    odd = [case for case in wanted if case.cells() in outside]
    go_through(odd, out / "blocks.csv", CELLS, BLOCK_COLUMNS, unmatched, deadline)


def peak_of(case: Case) -> tuple[int, int, int]:
    """The measured peaks in bytes: of allocated blocks, of requests, of what the process reserved."""
    import torch

    from ctxbench.plugins.memory.measure import measure_allocation

    with on_device(case) as (module, image):
        peak = measure_allocation(module, image, mode=case.mode)
        reserved = torch.cuda.memory_stats().get("reserved_bytes.all.peak", 0)
    return peak.allocated_bytes, peak.requested_bytes or 0, reserved


def unmatched(case: Case) -> list[tuple[object, ...]]:
    """The largest blocks that the prediction or the allocator has alone, and the operators that made them."""
    from allocator_history import differing_blocks

    found = differing_blocks(case, DEVICE)[:LARGEST]
    return [(each.only_in, each.block.bytes, each.block.made_by, each.block.where) for each in found]


def _outside(out: Path, expected: Mapping[tuple[str, ...], ExpectedPeak]) -> list[dict[str, str]]:
    rows = [row for row in read(out / "peaks.csv") if row["measured_bytes"]]
    return [
        row
        for row in rows
        if (peak := _known(row, expected)).bytes is not None and not peak.holds(int(row["measured_bytes"]))
    ]


def judge_peaks(out: Path) -> Verdict:
    expected = expected_peaks()
    rows = read(out / "peaks.csv")
    both = [row for row in rows if row["measured_bytes"] and _known(row, expected).bytes is not None]
    if not both:
        raise CannotRun("no case has both peaks")
    wrong = _outside(out, expected)
    errors = sorted(
        ((_known(row, expected).bytes or 0) / int(row["measured_bytes"]) - 1, " ".join(row[key] for key in CELLS))
        for row in wrong
    )
    largest = max(errors, key=lambda pair: abs(pair[0]), default=None)
    seen = f"{len(both) - len(wrong)} of {len(both)} peaks in their bands"
    seen += f"; furthest: {largest[0]:+.1%} ({largest[1]})" if largest else ""
    done = {tuple(row[key] for key in CELLS) for row in rows}
    return Verdict(not wrong, seen, _left([case for case in ALL if not known(case, expected).refused], done))


def known(case: Case, expected: Mapping[tuple[str, ...], ExpectedPeak]) -> ExpectedPeak:
    """Expectation of a case; nothing of a block that is newer than the expectations."""
    return expected.get(case.cells(), ExpectedPeak(None, None))


def _known(row: dict[str, str], expected: Mapping[tuple[str, ...], ExpectedPeak]) -> ExpectedPeak:
    return expected.get(tuple(row[key] for key in CELLS), ExpectedPeak(None, None))


def _left(cases: Sequence[Case], done: Iterable[tuple[str, ...]]) -> str:
    lacking = {case.cells() for case in cases} - {*done}
    return f"{len(lacking)} of {len(cases)} cases" if lacking else ""


@dataclass(frozen=True)
class Block:
    """A block of the registry, in inference at the middle shape in float32."""

    module: str

    def cells(self) -> tuple[str, ...]:
        return (self.module,)


def measure_compiled(out: Path, deadline: float) -> None:
    go_through([*map(Block, TEN)], out / "compiled.csv", ("module",), COMPILED_COLUMNS, compiled_of, deadline)


def compiled_of(block: Block) -> list[tuple[object, ...]]:
    """Milliseconds of a pass as it is, as a CUDA graph, and compiled; the seconds of compiling it."""
    import torch

    from ctxbench import devices

    case = Case(block.module, MODES[0], "float32", MEDIUM)
    with on_device(case) as (module, image), torch.inference_mode():
        module.eval()
        device = devices.device(DEVICE)
        eager = passes_ms(lambda: module(image))
        graph = passes_ms(device.captured(lambda: module(image)))
        start, compiled = time.monotonic(), torch.compile(module)
        compiled(image)
        synchronize()
        seconds = time.monotonic() - start
        cells = (eager, graph, passes_ms(lambda: compiled(image)), seconds)
    torch._dynamo.reset()
    return [tuple(f"{each:.4g}" for each in cells)]


def passes_ms(step: Callable[[], object]) -> float:
    """Milliseconds of a pass: the median of five blocks, after three passes."""
    import statistics

    from ctxbench import devices

    clock = devices.device(DEVICE).clock()
    once = min(clock.time_block(step, 1) for _ in range(3))
    passes = max(1, round(BLOCK_S / once))
    return statistics.median(clock.time_block(step, passes) / passes * 1e3 for _ in range(5))


def judge_compiled(out: Path) -> Verdict:
    rows = read(out / "compiled.csv")
    if not rows:
        raise CannotRun("no block was written")
    good = [row for row in rows if not row[REFUSED]]
    slow = [row["module"] for row in good if float(row["graph_ms"]) > GRAPH_SHARE * float(row["eager_ms"])]
    failed = [f"{row['module']}: {row[REFUSED]}" for row in rows if row[REFUSED]]
    seen = f"{len(good)} of {len(TEN)} blocks; " + (
        f"slower as a graph: {', '.join(slow)}" if slow else "no graph slower"
    )
    lacking = {*TEN} - {row["module"] for row in rows}
    return Verdict(not (slow or failed), "; ".join([seen, *failed[:2]]), f"{len(lacking)} blocks" if lacking else "")


def synchronize() -> None:
    from ctxbench import devices

    devices.device(DEVICE).synchronize()


@contextmanager
def on_device(case: Case) -> "Iterator[tuple[torch.nn.Module, torch.Tensor]]":
    """A case's block and image on the GPU, under a run's flags; then their memory is given back."""
    from ctxbench import devices

    device = devices.device(DEVICE)
    device.set_flags(case.dtype, None, False)
    try:
        yield case.built(DEVICE)
    finally:
        device.release()
