"""A predicted peak with the workspaces of a card, which a script tells in cuDNN's place."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from ctxbench.base.mode import Mode
from ctxbench.plugins.cudnn import on_card as module
from ctxbench.plugins.cudnn.ask import Answers, NoAnswerError
from ctxbench.plugins.cudnn.library import CudnnChoice, CudnnConvolution
from ctxbench.plugins.memory.convention import is_bound
from ctxbench.plugins.memory.explain import explain
from ctxbench.plugins.memory.predict import on_card, predict_peak
from ctxbench.plugins.memory.profile import MemoryProfile

# Bytes of a map, of an image, of the weight and of the bias of the convolution below.
MAP, WEIGHT, BIAS = 4 * 16 * 32 * 32, 4 * 16 * 16 * 9, 512
Tell = Callable[[CudnnConvolution], CudnnChoice | str]
Use = Callable[[Tell], list[CudnnConvolution]]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Have a function answer in cuDNN's place; the list is what it was asked."""

    def use(answer: Tell) -> list[CudnnConvolution]:
        asked: list[CudnnConvolution] = []

        def ask(card: str, questions: Sequence[CudnnConvolution]) -> list[Answers]:
            asked.extend(questions)
            return [Answers("9.19.0", {each: answer(each) for each in questions})]

        monkeypatch.setattr(module, "ask", ask)
        return asked

    return use


def profiles(mode: Mode, *, before: nn.Module | None = None, card: str = "h200") -> tuple[MemoryProfile, MemoryProfile]:
    """A convolution's profile without a card and on one."""
    layers = [before] if before else []
    found = predict_peak(nn.Sequential(*layers, nn.Conv2d(16, 16, 3, padding=1)), torch.empty(1, 16, 32, 32), mode=mode)
    return found, on_card(found, card)


def test_a_workspace_is_in_the_peak_beside_the_output(tell: Use) -> None:
    asked = tell(lambda each: CudnnChoice(7, 1000))
    plain, found = profiles("infer")
    assert plain.peak_bytes == MAP + WEIGHT + BIAS
    assert found.peak_bytes == plain.peak_bytes + 1024
    assert found.at_op == "aten.convolution.default"
    assert sum(block.bytes for block in found.alive) == found.peak_bytes
    assert [(each.turn, each.image, each.tf32) for each in asked] == [("forward", (1, 16, 32, 32), False)]
    assert "cuDNN convolution" in plain.workspaces
    assert "cuDNN convolution" not in found.workspaces
    assert (
        "cuDNN 9.19.0 was asked without a GPU what 1 convolutions take on h200: at most 0.0 MiB, in engine 7 (forward, "
        "1x16x32x32 by 16x16x3x3, float32)."
    ) in explain(found)
    assert plain.timeline[0].live_bytes == plain.peak_bytes


@pytest.mark.parametrize(
    ("of_image", "of_weight", "inside"),
    [(0, 2**20, 2**20 - BIAS), (2**20, 0, 2**20 - WEIGHT - BIAS), (2**20, 2**20, 2**20 - BIAS), (WEIGHT, 0, 0)],
)
def test_gradients_are_computed_one_after_the_other(tell: Use, of_image: int, of_weight: int, inside: int) -> None:
    bytes_of = {"forward": 0, "image": of_image, "weight": of_weight}
    asked = tell(lambda each: CudnnChoice(7, bytes_of[each.turn]))
    plain, found = profiles("train", before=nn.BatchNorm2d(16))
    assert [each.turn for each in asked] == ["forward", "image", "weight"]
    (step,) = (at for at, each in enumerate(plain.timeline) if "convolution_backward" in each.op)
    assert plain.timeline[step].inner == (MAP,)  # a copy of the gradient of the sum, which has strides of 0
    assert found.timeline[step].inner == (MAP, *[inside] * bool(inside))
    assert found.timeline[step].live_bytes == plain.timeline[step].live_bytes + inside


def test_a_rule_s_workspace_and_a_card_that_was_not_compared_are_told(tell: Use) -> None:
    tell(lambda each: CudnnChoice(67, 512, (17,) if each.turn == "weight" else ()))
    _, found = profiles("train", card="t4")
    winograd = 36 * 4 * (64 * 32 + 16 * 16)
    assert found.peak_bytes - profiles("infer")[0].peak_bytes > winograd
    ruled, confirmed = map(str, found.told[1:])
    assert ruled.startswith("1 of these engines it refuses without a device")
    assert confirmed == "These workspaces were compared with an H200 and cuDNN 9.19 alone."


def test_what_may_lift_the_peak_is_marked_with_how_much(tell: Use) -> None:
    image = torch.empty(1, 20, 32, 32, dtype=torch.float16)
    plain = predict_peak(nn.Conv2d(20, 16, 1, bias=False).half(), image, mode="train")
    tell(lambda each: CudnnChoice(65, 0, (62,) if each.turn == "weight" else ()))
    found = on_card(plain, "h200")
    (mark,) = set(found.marks) - set(plain.marks)
    assert mark == "aten.convolution_backward.default on this card"
    assert not is_bound(found.marks)
    assert found.peak_bytes == plain.peak_bytes + -(-4 * 20 * 16 // 512) * 512
    ends = next(each.values for each in found.told if each.code == "cudnn_range")
    assert ends == {"low": found.peak_bytes / 2**20, "high": (plain.peak_bytes + 18 * 4 * 20 * 16) / 2**20}
    tell(lambda each: CudnnChoice(65, 0))
    assert not set(on_card(plain, "h200").marks) - set(plain.marks)


def test_where_cudnn_does_not_answer_the_peak_stays_and_a_sentence_says_why(
    tell: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(card: str, questions: Sequence[CudnnConvolution]) -> list[Answers]:
        raise NoAnswerError("there is none here")

    monkeypatch.setattr(module, "ask", refuse)
    plain, found = profiles("train")
    assert (found.peak_bytes, found.workspaces) == (plain.peak_bytes, plain.workspaces)
    assert [*map(str, found.told)] == ["cuDNN was not asked for its workspaces on h200: there is none here."]
    tell(lambda each: "no configuration")
    plain, found = profiles("train")
    assert found.peak_bytes == plain.peak_bytes
    assert set(found.marks) - set(plain.marks) == {"aten.convolution.default", "aten.convolution_backward.default"}


@pytest.mark.parametrize("setting", ["benchmark", "deterministic"])
def test_a_setting_that_changes_the_choice_is_refused(tell: Use, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    asked = tell(lambda each: CudnnChoice(7, 1000))
    monkeypatch.setattr(torch.backends.cudnn, setting, True)
    plain, found = profiles("infer")
    assert found.peak_bytes == plain.peak_bytes
    assert setting in str(found.told[0])
    assert not asked


def test_a_second_library_is_compared_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(card: str, questions: Sequence[CudnnConvolution]) -> list[Answers]:
        sizes = {"9.10.1": 2**20, "9.20.0": 2**21}
        return [Answers(name, {each: CudnnChoice(7, size) for each in questions}) for name, size in sizes.items()]

    monkeypatch.setattr(module, "ask", ask)
    plain, found = profiles("infer")
    assert found.peak_bytes == plain.peak_bytes + 2**20
    more = (plain.peak_bytes + 2**21) / 2**20
    assert [*map(str, found.told[1:])] == [
        "These workspaces were compared with an H200 and cuDNN 9.19 alone.",
        f"With cuDNN 9.20.0 the peak is {more:,.1f} MiB, and 1 of 1 convolutions take another workspace.",
    ]


def test_what_needs_no_cudnn_is_left_as_it_is(tell: Use) -> None:
    asked = tell(lambda each: CudnnChoice(7, 1000))
    image = torch.empty(1, 16, 32, 32)
    for layer, device in ((nn.Conv2d(16, 16, 3), "cpu"), (nn.ReLU(), "cuda")):
        found = predict_peak(layer, image, mode="infer", device=device)  # type: ignore[arg-type]  # two of the names
        assert on_card(found, "h200") is found
        assert on_card(found, "") is found
    depthwise = predict_peak(nn.Conv2d(16, 16, 3, groups=16), image, mode="train")
    assert on_card(depthwise, "h200").peak_bytes == depthwise.peak_bytes
    assert not asked
