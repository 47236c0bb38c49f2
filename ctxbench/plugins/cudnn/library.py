"""cuDNN's backend by ctypes: engine and workspace of a convolution on a GPU, or on a card that is not here.

A card is the JSON of its properties, as cuDNN writes them. The calls and numbers are those of `cudnn_graph.h` (cuDNN
9.8 and later). Run as a program, it reads questions as JSON lines and answers each by a line: the library may abort its
process. Imports the standard library alone.
"""

import ctypes
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

NAME = "libcudnn.so.9"
DESCRIPTORS = {
    "CONVOLUTION": 1, "ENGINE": 2, "CONFIGURATION": 3, "HEURISTICS": 4, "PLAN": 5, "forward": 10, "weight": 11,
    "image": 12, "GRAPH": 15, "TENSOR": 17, "PROPERTIES": 38,
}  # fmt: skip
TYPES: dict[str, tuple[int, Any]] = {
    "HANDLE": (0, ctypes.c_void_p), "DATA_TYPE": (1, ctypes.c_int), "BOOLEAN": (2, ctypes.c_bool),
    "INT64": (3, ctypes.c_int64), "FLOAT": (4, ctypes.c_float), "DOUBLE": (5, ctypes.c_double),
    "MODE": (7, ctypes.c_int), "HEURISTIC": (8, ctypes.c_int), "NOTE": (11, ctypes.c_int),
    "DESCRIPTOR": (15, ctypes.c_void_p), "INT32": (23, ctypes.c_int32), "CHAR": (24, ctypes.c_char),
}  # fmt: skip
NUMBERS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
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
# Messages that are to be logged: those of severity 3.
INFORMATION = 1 << 3
# In the line of an engine's configuration; the line after it may say that it is not supported.
ENGINE, REFUSED = re.compile(rb'"engineId":(\d+)'), b"NOT_SUPPORTED"
Callback = ctypes.CFUNCTYPE(None, ctypes.c_int, *[ctypes.c_void_p] * 3)


class CudnnError(RuntimeError):
    """Answer of cuDNN that is no success."""


@dataclass(frozen=True)
class CudnnConvolution:
    """A convolution: the pass (`forward`, or the gradient that is computed), shapes, dtype, TF32 or not.

    Its maps and weights are contiguous, or channels `last`.
    """

    turn: str
    image: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: str = "float32"
    tf32: bool = False
    last: bool = False

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


@dataclass(frozen=True)
class CudnnChoice:
    """A convolution's engine, its workspace in bytes, and the engines that rank before it and are not available here.

    cuDNN refuses those that ask cuBLAS or the driver where no device answers.
    """

    engine: int
    bytes: int
    refused: tuple[int, ...] = ()


def load(folder: Path | None = None) -> Any:
    """The library of a folder, or the one that the process has. CudnnError if it cannot be loaded."""
    try:
        library = ctypes.CDLL(NAME if folder is None else str(folder / NAME))
    except OSError as error:
        raise CudnnError(str(error)) from None
    library.cudnnGetErrorString.restype = ctypes.c_char_p
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return library


class Cudnn:
    """The library with a handle of this GPU, or with the properties of one."""

    def __init__(self, library: Any, properties: str = "") -> None:
        self._library = library
        self._handle, self._properties = ctypes.c_void_p(), None
        if properties:
            self._properties = self._new("PROPERTIES").set(2702, "CHAR", properties.encode()).made()
        elif status := library.cudnnCreate(ctypes.byref(self._handle)):
            raise CudnnError(library.cudnnGetErrorString(status).decode())

    def _new(self, kind: str) -> Descriptor:
        return Descriptor(self._library, kind)

    def properties(self) -> str:
        """The properties of this GPU in JSON."""
        return self._new("PROPERTIES").set(2700, "INT32", 0).made().text(2702)

    def chosen(self, asked: CudnnConvolution) -> CudnnChoice:
        """The first configuration that PyTorch would run, `benchmark` being off. CudnnError if there is none."""
        graph = self._graph(asked)
        refused: list[int] = []
        for mode in HEURISTICS:
            rank = 0
            for rank, each in enumerate(self._ranked(graph, mode), 1):
                (engine,) = each.descriptors(300, "ENGINE", 1)
                notes = engine.values(1303, "NOTE", 10)
                if DOWN_CONVERT in notes or (asked.dtype == "float32" and not asked.tf32 and TENSOR_CORE in notes):
                    continue
                try:
                    found = engine.values(1301, "INT64")[0], self._workspace(each)
                except CudnnError:  # as PyTorch does, the next one is tried
                    continue
                return CudnnChoice(*found, tuple(dict.fromkeys([*refused, *self._refused(graph, mode, rank)])))
            refused += self._refused(graph, mode, rank + 1)
        raise CudnnError("no configuration")

    def _ranked(self, graph: Descriptor, mode: int, most: int | None = None) -> list[Descriptor]:
        """Configurations that a heuristic has for a graph, the best first."""
        heuristics = self._new("HEURISTICS").set(201, "DESCRIPTOR", graph).set(200, "HEURISTIC", mode)
        if self._properties:
            heuristics.set(204, "DESCRIPTOR", self._properties)
        return heuristics.made().descriptors(202, "CONFIGURATION", most)

    def _refused(self, graph: Descriptor, mode: int, rank: int) -> list[int]:
        """Engines that are refused before the configuration of a rank is found, which is where the search ends.

        A GPU that is here refuses none but those that it cannot run.
        """
        if not self._properties:
            return []
        with self._told() as found:
            self._ranked(graph, mode, rank)
        return found

    @contextmanager
    def _told(self) -> Iterator[list[int]]:
        """The engines whose configurations cuDNN's log says that it refuses."""
        found: list[int] = []

        def note(severity: int, data: int, about: int, message: int) -> None:
            before = b""
            while line := ctypes.string_at(message):  # the last line of a message is empty
                if REFUSED in line and (engine := ENGINE.search(before)):
                    found.append(int(engine[1]))
                before = line
                message += len(line) + 1

        callback = Callback(note)
        self._library.cudnnSetCallback(INFORMATION, None, callback)
        try:
            yield found
        finally:
            self._library.cudnnSetCallback(0, None, None)

    def _workspace(self, configuration: Descriptor) -> int:
        plan = self._new("PLAN").set(401, "DESCRIPTOR", configuration)
        if self._properties:
            plan.set(407, "DESCRIPTOR", self._properties)
        else:
            plan.set(400, "HANDLE", self._handle.value)
        found: int = plan.made().values(402, "INT64")[0]
        return found

    def _graph(self, asked: CudnnConvolution) -> Descriptor:
        convolution, weight, image, output, alpha, beta = ATTRIBUTES[asked.turn]
        computed, scalar = ("float64", "DOUBLE") if asked.dtype == "float64" else ("float32", "FLOAT")
        how = self._new("CONVOLUTION").set(100, "DATA_TYPE", NUMBERS[computed]).set(101, "MODE", 1)
        how.set(106, "INT64", len(asked.stride)).set(103, "INT64", *asked.stride).set(105, "INT64", *asked.padding)
        how.set(104, "INT64", *asked.padding).set(102, "INT64", *asked.dilation).made()
        operation = self._new(asked.turn).set(convolution, "DESCRIPTOR", how)
        for number, (attribute, shape) in enumerate(
            [(image, asked.image), (weight, asked.weight), (output, asked.output)]
        ):
            operation.set(attribute, "DESCRIPTOR", self._tensor(number, shape, asked))
        operation.set(alpha, scalar, 1.0).set(beta, scalar, 0.0).made()
        graph = self._new("GRAPH").set(801, "DESCRIPTOR", operation)
        if not self._properties:
            graph.set(800, "HANDLE", self._handle.value)
        return graph.made()

    def _tensor(self, number: int, shape: Sequence[int], asked: CudnnConvolution) -> Descriptor:
        tensor = self._new("TENSOR").set(906, "INT64", number + 1).set(901, "DATA_TYPE", NUMBERS[asked.dtype])
        tensor.set(902, "INT64", *shape).set(903, "INT64", *strides(shape, asked.last)).set(900, "INT64", ALIGNMENT)
        return tensor.set(907, "BOOLEAN", False).made()


def strides(shape: Sequence[int], last: bool) -> list[int]:
    """Strides in numbers of a contiguous tensor, or of one with its channels last."""
    axes = range(len(shape))
    found, step = [0] * len(shape), 1
    for axis in [1, *axes[:1:-1], 0] if last else reversed(axes):
        found[axis], step = step, step * shape[axis]
    return found


def main() -> None:
    """Answer the questions of the input: a folder and properties in the first line, a convolution in each other one.

    Each answer is a line at once, so that what was answered before an abort is not lost.
    """
    first, *questions = map(json.loads, sys.stdin)
    library = load(Path(first["folder"]))
    _answer(library.cudnnGetVersion())
    cudnn = Cudnn(library, json.dumps(first["properties"]))
    for fields in questions:
        try:
            found = cudnn.chosen(CudnnConvolution(**{name: _plain(value) for name, value in fields.items()}))
        except CudnnError as error:
            _answer(str(error))
        else:
            _answer([found.engine, found.bytes, found.refused])


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _answer(answer: object) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except CudnnError as error:
        sys.exit(str(error))
