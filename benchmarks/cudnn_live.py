"""A step of gpu.py: is cuDNN that is asked without a device the cuDNN that a GPU has? For the blocks' convolutions.

Each convolution is asked about with a handle of this GPU, and without one by the GPU's own properties as cuDNN writes
them. A row has both choices, and what PyTorch then requests beside the output, in bytes, and the milliseconds it takes.
The calls and numbers are those of `cudnn_graph.h` (cuDNN 9.8 and later).
"""

import csv
import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from gpu_step import DTYPES, REFUSED, CannotRun, Case, Verdict, go_through, read

TABLE = Path(__file__).parent / "expected" / "convolutions.csv"
KEYS = ("turn", "image", "weight", "output", "padding", "stride", "dilation", "dtype", "tf32")
COLUMNS = ("live_engine", "live_bytes", "deviceless_engine", "deviceless_bytes", "requested_bytes", "ms")
# The share of convolutions for which both choices are expected to be the same.
SAME_SHARE = 0.95
DESCRIPTORS = {
    "CONVOLUTION": 1, "ENGINE": 2, "CONFIGURATION": 3, "HEURISTICS": 4, "PLAN": 5, "forward": 10, "weight": 11,
    "image": 12, "GRAPH": 15, "TENSOR": 17, "PROPERTIES": 38,
}  # fmt: skip
TYPES: dict[str, tuple[int, Any]] = {
    "HANDLE": (0, ctypes.c_void_p), "DATA_TYPE": (1, ctypes.c_int), "BOOLEAN": (2, ctypes.c_bool),
    "INT64": (3, ctypes.c_int64), "FLOAT": (4, ctypes.c_float), "MODE": (7, ctypes.c_int),
    "HEURISTIC": (8, ctypes.c_int), "NOTE": (11, ctypes.c_int), "DESCRIPTOR": (15, ctypes.c_void_p),
    "INT32": (23, ctypes.c_int32), "CHAR": (24, ctypes.c_char),
}  # fmt: skip
NUMBERS = {"float32": 0, "float16": 2, "bfloat16": 9}
# Notes of an engine that PyTorch leaves out: one always, one in float32 without TF32.
TENSOR_CORE, DOWN_CONVERT = 0, 1
# PyTorch asks for the heuristic that is instant, then for the one that always has an answer.
HEURISTICS = (0, 2)
# What each gradient, or the forward pass, calls convolution, weight, image, output, alpha and beta.
ATTRIBUTES = {
    "forward": (702, 703, 704, 705, 700, 701),
    "image": (708, 709, 710, 711, 706, 707),
    "weight": (714, 715, 716, 717, 712, 713),
}
ALIGNMENT = 32


class CudnnError(RuntimeError):
    """Answer of cuDNN that is no success."""


@dataclass(frozen=True)
class Convolution:
    """A convolution of a block: the pass (`forward`, or the gradient that is computed), shapes, dtype, TF32 or not."""

    turn: str
    image: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: str = "float32"
    tf32: bool = False

    def cells(self) -> tuple[str, ...]:
        shapes = (self.image, self.weight, self.output, self.padding, self.stride, self.dilation)
        return self.turn, *("x".join(map(str, each)) for each in shapes), self.dtype, str(self.tf32)


class Descriptor:
    """A descriptor of cuDNN's backend, filled by `set`, then `made`, then read."""

    def __init__(self, library: Any, kind: str) -> None:
        self._library, self._kept, self.pointer = library, list[Descriptor](), ctypes.c_void_p()
        self._check(library.cudnnBackendCreateDescriptor(DESCRIPTORS[kind], ctypes.byref(self.pointer)))

    def _check(self, status: int) -> None:
        if status:
            raise CudnnError(self._library.cudnnGetErrorString(status).decode())

    def set(self, attribute: int, kind: str, *values: Any) -> Self:
        number, type_ = TYPES[kind]
        if kind == "DESCRIPTOR":
            self._kept += values
            values = tuple(each.pointer.value for each in values)
        if kind == "CHAR":
            array, count = ctypes.create_string_buffer(values[0], len(values[0])), len(values[0])
        else:
            array, count = (type_ * len(values))(*values), len(values)
        self._check(
            self._library.cudnnBackendSetAttribute(self.pointer, attribute, number, ctypes.c_int64(count), array)
        )
        return self

    def made(self) -> Self:
        self._check(self._library.cudnnBackendFinalize(self.pointer))
        return self

    def _read(self, attribute: int, kind: str, count: int, array: Any) -> int:
        given, number = ctypes.c_int64(), TYPES[kind][0]
        call = self._library.cudnnBackendGetAttribute
        self._check(call(self.pointer, attribute, number, ctypes.c_int64(count), ctypes.byref(given), array))
        return given.value

    def values(self, attribute: int, kind: str, most: int = 1) -> list[Any]:
        array = (TYPES[kind][1] * most)()
        return list(array[: min(most, self._read(attribute, kind, most, array))])

    def text(self, attribute: int) -> str:
        array = ctypes.create_string_buffer(self._read(attribute, "CHAR", 0, None))
        self._read(attribute, "CHAR", len(array), array)
        return array.raw.rstrip(b"\0").decode()

    def descriptors(self, attribute: int, kind: str, most: int | None = None) -> "list[Descriptor]":
        count = self._read(attribute, "DESCRIPTOR", 0, None) if most is None else most
        found = [Descriptor(self._library, kind) for _ in range(count)]
        array = (ctypes.c_void_p * count)(*[each.pointer.value for each in found])
        return found[: self._read(attribute, "DESCRIPTOR", count, array)] if count else []

    def __del__(self) -> None:
        self._library.cudnnBackendDestroyDescriptor(self.pointer)


class Cudnn:
    """The library that torch has loaded, with a handle of this GPU, or with the properties of one."""

    def __init__(self, properties: str = "") -> None:
        import torch

        torch.backends.cudnn.version()  # loads it
        self._library = ctypes.CDLL("libcudnn.so.9")
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p
        self._handle, self._properties = ctypes.c_void_p(), None
        if properties:
            self._properties = self._new("PROPERTIES").set(2702, "CHAR", properties.encode()).made()
        elif status := self._library.cudnnCreate(ctypes.byref(self._handle)):
            raise CudnnError(self._library.cudnnGetErrorString(status).decode())

    def _new(self, kind: str) -> Descriptor:
        return Descriptor(self._library, kind)

    def properties(self) -> str:
        """The properties of this GPU in JSON."""
        return self._new("PROPERTIES").set(2700, "INT32", 0).made().text(2702)

    def chosen(self, asked: Convolution) -> tuple[int, int]:
        """Engine and workspace in bytes of the first configuration that PyTorch would run, `benchmark` being off."""
        graph = self._graph(asked)
        for mode in HEURISTICS:
            heuristics = self._new("HEURISTICS").set(201, "DESCRIPTOR", graph).set(200, "HEURISTIC", mode)
            if self._properties:
                heuristics.set(204, "DESCRIPTOR", self._properties)
            for each in heuristics.made().descriptors(202, "CONFIGURATION"):
                (engine,) = each.descriptors(300, "ENGINE", 1)
                notes = engine.values(1303, "NOTE", 10)
                if DOWN_CONVERT in notes or (asked.dtype == "float32" and not asked.tf32 and TENSOR_CORE in notes):
                    continue
                try:
                    return engine.values(1301, "INT64")[0], self._workspace(each)
                except CudnnError:  # as PyTorch does, the next one is tried
                    continue
        raise CudnnError("no configuration")

    def _workspace(self, configuration: Descriptor) -> int:
        plan = self._new("PLAN").set(401, "DESCRIPTOR", configuration)
        if self._properties:
            plan.set(407, "DESCRIPTOR", self._properties)
        else:
            plan.set(400, "HANDLE", self._handle.value)
        found: int = plan.made().values(402, "INT64")[0]
        return found

    def _graph(self, asked: Convolution) -> Descriptor:
        convolution, weight, image, output, alpha, beta = ATTRIBUTES[asked.turn]
        how = self._new("CONVOLUTION").set(100, "DATA_TYPE", NUMBERS["float32"]).set(101, "MODE", 1)
        how.set(106, "INT64", len(asked.stride)).set(103, "INT64", *asked.stride).set(105, "INT64", *asked.padding)
        how.set(104, "INT64", *asked.padding).set(102, "INT64", *asked.dilation).made()
        operation = self._new(asked.turn).set(convolution, "DESCRIPTOR", how)
        for number, (attribute, shape) in enumerate(
            [(image, asked.image), (weight, asked.weight), (output, asked.output)]
        ):
            operation.set(attribute, "DESCRIPTOR", self._tensor(number, shape, asked.dtype))
        operation.set(alpha, "FLOAT", 1.0).set(beta, "FLOAT", 0.0).made()
        graph = self._new("GRAPH").set(801, "DESCRIPTOR", operation)
        if not self._properties:
            graph.set(800, "HANDLE", self._handle.value)
        return graph.made()

    def _tensor(self, number: int, shape: Sequence[int], dtype: str) -> Descriptor:
        steps = [1]
        for size in reversed(shape[1:]):
            steps.insert(0, steps[0] * size)
        tensor = self._new("TENSOR").set(906, "INT64", number + 1).set(901, "DATA_TYPE", NUMBERS[dtype])
        tensor.set(902, "INT64", *shape).set(903, "INT64", *steps).set(900, "INT64", ALIGNMENT)
        return tensor.set(907, "BOOLEAN", False).made()


@cache
def both_sides() -> tuple[Cudnn, Cudnn]:
    live = Cudnn()
    return live, Cudnn(live.properties())


def measure(out: Path, deadline: float) -> None:
    properties = out / "cudnn-properties.json"
    if not properties.exists():
        properties.write_text(both_sides()[0].properties() + "\n", encoding="utf-8")
    go_through(convolutions(), out / "cudnn.csv", KEYS, COLUMNS, asked, deadline)


def asked(convolution: Convolution) -> list[tuple[object, ...]]:
    """Both choices, and what PyTorch requests and takes."""
    cells: list[object] = []
    for side in both_sides():
        try:
            cells += side.chosen(convolution)
        except CudnnError as error:
            cells += [str(error), ""]
    return [(*cells, *requested(convolution))]


def requested(asked: Convolution) -> tuple[int, str]:
    """Bytes that PyTorch requests during the second call, less its output's; milliseconds of the third."""
    import torch

    torch.backends.cudnn.set_flags(_allow_tf32=asked.tf32, _benchmark=False, _fp32_precision=None)
    kind = getattr(torch, asked.dtype)
    image, weight, grad = (
        torch.randn(shape, device="cuda", dtype=kind) for shape in (asked.image, asked.weight, asked.output)
    )
    groups, sides = asked.image[1] // asked.weight[1], (asked.stride, asked.padding, asked.dilation)
    mask = [asked.turn == "image", asked.turn == "weight", False]

    def call() -> Any:
        if asked.turn == "forward":
            return torch.ops.aten.convolution(image, weight, None, *sides, False, [0, 0], groups)
        return torch.ops.aten.convolution_backward(grad, image, weight, None, *sides, False, [0, 0], groups, mask)

    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    found = call()
    torch.cuda.synchronize()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    made = found if isinstance(found, tuple) else (found,)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return peak - sum(each.nbytes for each in made if each is not None), f"{start.elapsed_time(end):.4f}"


def judge(out: Path) -> Verdict:
    rows = read(out / "cudnn.csv")
    if not rows:
        raise CannotRun("no convolution was asked about")
    same = [
        row["live_engine"] == row["deviceless_engine"] and row["live_bytes"] == row["deviceless_bytes"] for row in rows
    ]
    taken = [row for row in rows if row["live_bytes"] and row["requested_bytes"]]
    met = sum(row["live_bytes"] == row["requested_bytes"] for row in taken)
    failed = [row[REFUSED] for row in rows if row[REFUSED]]
    seen = f"{sum(same)} of {len(rows)} choices are the same; PyTorch requests the workspace in {met} of {len(taken)}"
    seen += f"; {len(failed)} failed, the first: {failed[0]}" if failed else ""
    left = len(convolutions()) - len(rows)
    return Verdict(sum(same) >= SAME_SHARE * len(same), seen, f"{left} convolutions" if left else "")


def convolutions() -> list[Convolution]:
    """The convolutions of all blocks that were written before, in each dtype, in float32 with TF32 and without."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [
            [row["turn"], *(tuple(map(int, row[key].split("x"))) for key in KEYS[1:7])] for row in csv.DictReader(file)
        ]
    known = [Convolution(*row) for row in rows]  # type: ignore[arg-type]  # a name, then tuples of whole numbers
    kinds = [("float32", False), *((dtype, True) for dtype in DTYPES)]
    return [replace(each, dtype=dtype, tf32=tf32) for dtype, tf32 in kinds for each in known]


def of_block(case: Case) -> set[Convolution]:
    """The convolutions of a training pass of a block, without data."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from ctxbench.plugins.memory.one_pass import prepared, run_pass

    found: set[Convolution] = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.convolution.default and not args[6]:
                found.add(_seen("forward", args[0], args[1], result, args[3:6]))
            elif func is torch.ops.aten.convolution_backward.default and not args[7]:
                for turn, is_asked in zip(("image", "weight"), args[10][:2], strict=True):
                    if is_asked:
                        found.add(_seen(turn, args[1], args[2], args[0], args[4:7]))
            return result

    module, image = case.built("meta")
    with prepared(module, case.mode), Watch():  # type: ignore[no-untyped-call]  # of torch
        run_pass(module, (image,), case.mode)
    return found


def _seen(turn: str, image: Any, weight: Any, output: Any, sides: Sequence[Sequence[int]]) -> Convolution:
    """A convolution as cuDNN is asked about it: one of one dimension has a height of 1."""
    shapes: list[tuple[int, ...]] = [tuple(each.shape) for each in (image, weight, output)]
    stride, padding, dilation = (tuple(each) for each in sides)
    if len(stride) == 1:
        shapes = [(*shape[:2], 1, shape[2]) for shape in shapes]
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    return Convolution(turn, shapes[0], shapes[1], shapes[2], padding, stride, dilation)


if __name__ == "__main__":
    print(json.dumps(json.loads(both_sides()[0].properties()), indent=2))
