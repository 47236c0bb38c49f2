"""The calls of cuDNN's backend, against a library that is a script."""

import ctypes
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ctxbench.plugins.cudnn import library
from ctxbench.plugins.cudnn.library import Cudnn, CudnnChoice, CudnnConvolution, CudnnError, strides

ASKED = CudnnConvolution("forward", (1, 8, 4, 4), (16, 8, 1, 1), (1, 16, 4, 4), (0, 0), (1, 1), (1, 1))
CORE, DOWN = library.TENSOR_CORE, library.DOWN_CONVERT
NOT_SUPPORTED = 3000


@dataclass(frozen=True)
class Ranked:
    """A configuration of a heuristic: its engine, notes, workspace (None: it has no plan), or that it is refused."""

    engine: int
    workspace: int | None = 0
    notes: tuple[int, ...] = ()
    is_refused: bool = False


@dataclass
class Object:
    kind: int
    held: dict[int, list[Any]] = field(default_factory=dict)
    ranked: Ranked | None = None


@dataclass
class Script:
    """A library whose heuristics are lists; a call that is not in `cudnn_graph.h`'s terms fails the test."""

    heuristics: dict[int, Sequence[Ranked]]
    objects: dict[int, Object] = field(default_factory=dict)
    callback: Any = None

    def cudnnCreate(self, handle: Any) -> int:
        return 1001

    def cudnnGetVersion(self) -> int:
        return 91900

    def cudnnGetErrorString(self, status: int) -> bytes:
        return f"CUDNN_STATUS_{status}".encode()

    def cudnnSetCallback(self, mask: int, data: None, callback: Any) -> int:
        self.callback = callback if mask == 8 else None
        return 0

    def cudnnBackendCreateDescriptor(self, kind: int, pointer: Any) -> int:
        pointer._obj.value = number = len(self.objects) + 1
        self.objects[number] = Object(kind)
        return 0

    def cudnnBackendDestroyDescriptor(self, pointer: Any) -> int:
        return 0

    def cudnnBackendSetAttribute(self, pointer: Any, attribute: int, kind: int, count: Any, array: Any) -> int:
        self.objects[pointer.value].held[attribute] = list(array[: count.value])
        return 0

    def cudnnBackendFinalize(self, pointer: Any) -> int:
        made = self.objects[pointer.value]
        if made.kind == library.DESCRIPTORS["PLAN"]:
            ranked = self.objects[made.held[401][0]].ranked
            assert ranked is not None
            return NOT_SUPPORTED if ranked.workspace is None else 0
        return 0

    def cudnnBackendGetAttribute(
        self, pointer: Any, attribute: int, kind: int, count: Any, given: Any, array: Any
    ) -> int:
        asked = self.objects[pointer.value]
        found: list[Any] = []
        if attribute == 202:
            found = self._configurations(asked, None if array is None else count.value)
        elif attribute == 300:
            found = [asked.ranked]
        elif attribute == 402:
            ranked = self.objects[asked.held[401][0]].ranked
            assert ranked is not None
            found = [ranked.workspace]
        elif asked.ranked is not None:
            found = {1301: [asked.ranked.engine], 1303: list(asked.ranked.notes)}[attribute]
        given._obj.value = len(found)
        for place, each in enumerate(found if array is not None else []):
            if isinstance(each, Ranked):
                self.objects[array[place]].ranked = each
            else:
                array[place] = each
        return 0

    def _configurations(self, asked: Object, most: int | None) -> list[Ranked]:
        found: list[Ranked] = []
        for each in self.heuristics[asked.held[200][0]]:
            if len(found) == most:
                break
            if each.is_refused:
                self._tell(each.engine)
            else:
                found.append(each)
        return found

    def _tell(self, engine: int) -> None:
        lines = (b"... called:", f'val={{"engineId":{engine},"knobs":{{}}}};'.encode(), b"Warning: NOT_SUPPORTED; x")
        text = ctypes.create_string_buffer(b"\0".join(lines) + b"\0")
        if self.callback:
            self.callback(3, None, None, ctypes.addressof(text))


def chosen(instant: Sequence[Ranked], fallback: Sequence[Ranked] = (), asked: CudnnConvolution = ASKED) -> CudnnChoice:
    return Cudnn(Script({0: instant, 2: fallback}), "{}").chosen(asked)


def test_the_first_configuration_that_pytorch_takes_is_chosen() -> None:
    ranked = [Ranked(1, 5, (DOWN,)), Ranked(2, 6, (CORE,)), Ranked(3, None), Ranked(4, 7), Ranked(5, 8)]
    assert chosen(ranked) == CudnnChoice(4, 7)
    half = replace(ASKED, dtype="float16")
    assert chosen(ranked, asked=half) == CudnnChoice(2, 6)
    assert chosen([Ranked(3, None)], [Ranked(9, 1)]) == CudnnChoice(9, 1)
    with pytest.raises(CudnnError, match="no configuration"):
        chosen([Ranked(3, None)])


def test_engines_that_are_refused_before_the_chosen_one_are_told_in_their_order() -> None:
    refused = [Ranked(58, is_refused=True), Ranked(2, 6, (CORE,)), Ranked(17, is_refused=True)]
    assert chosen([*refused, Ranked(67, 512), Ranked(50, is_refused=True)]) == CudnnChoice(67, 512, (58, 17))
    assert chosen(refused, [Ranked(5, is_refused=True), Ranked(0, 0)]) == CudnnChoice(0, 0, (58, 17, 5))


def test_an_error_has_the_name_that_the_library_gives_it() -> None:
    with pytest.raises(CudnnError, match="CUDNN_STATUS_1001"):
        Cudnn(Script({}))


def test_a_convolution_is_described_with_its_shapes_strides_and_dtypes() -> None:
    script = Script({0: [Ranked(1)], 2: []})
    last = CudnnConvolution(
        "weight", (2, 8, 4, 6), (16, 8, 3, 3), (2, 16, 4, 6), (1, 1), (1, 1), (2, 2), "float64", last=True
    )
    Cudnn(script, "{}").chosen(last)
    tensors = [each.held for each in script.objects.values() if each.kind == library.DESCRIPTORS["TENSOR"]]
    assert [each[902] for each in tensors] == [[2, 8, 4, 6], [16, 8, 3, 3], [2, 16, 4, 6]]
    assert tensors[0][903] == [192, 1, 48, 8]
    assert {each[901][0] for each in tensors} == {library.NUMBERS["float64"]}
    (how,) = [each.held for each in script.objects.values() if each.kind == library.DESCRIPTORS["CONVOLUTION"]]
    assert (how[100], how[102], how[106]) == ([library.NUMBERS["float64"]], [2, 2], [2])


def test_strides_are_those_of_the_layout() -> None:
    assert strides((2, 3, 5, 7), last=False) == [105, 35, 7, 1]
    assert strides((2, 3, 5, 7), last=True) == [105, 1, 21, 3]
    assert strides((2, 3, 4, 5, 7), last=True) == [420, 1, 105, 21, 3]


def test_the_program_answers_each_line_by_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script({0: [Ranked(58, is_refused=True), Ranked(7, 64)], 2: []})
    monkeypatch.setattr(library, "load", lambda folder: script)
    question = vars(ASKED)
    lines = [{"folder": "/x", "properties": {}}, question, question]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(json.dumps, lines))))
    library.main()
    assert capsys.readouterr().out.splitlines() == ["91900", "[7, 64, [58]]", "[7, 64, [58]]"]


def test_a_folder_without_the_library_is_a_sentence(tmp_path: Any) -> None:
    with pytest.raises(CudnnError, match="libcudnn"):
        library.load(tmp_path)
