"""A predicted pass with the workspaces that cuDNN takes on a card."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from ctxbench.base.notes import Note
from ctxbench.devices.cuda import Cuda
from ctxbench.meta.calls import Operation
from ctxbench.plugins.cudnn.ask import Answers, NoAnswerError, ask, cards
from ctxbench.plugins.cudnn.attention import with_attention
from ctxbench.plugins.cudnn.choice import CALLS, Workspace, asked_of, not_compared, workspace
from ctxbench.plugins.cudnn.library import CudnnChoice, CudnnConvolution
from ctxbench.plugins.memory.convention import ON_THIS_CARD
from ctxbench.plugins.memory.profile import MIB, MemoryProfile, MemoryStep

LIBRARY = "cuDNN convolution"
# The card and the versions whose answers were compared with a GPU; the second gives those of the first.
COMPARED, VERSIONS = "h200", ("9.19.", "9.20.")
# A smaller part of the peak gets no mark.
WORTH_NAMING = 0.01


def with_workspaces(profile: MemoryProfile, card: str, tf32: bool) -> MemoryProfile:
    """The profile with cuDNN's workspaces of each convolution on a card, or with a note on why there are none."""
    if profile.device != "cuda":
        return profile
    if card in cards():
        profile = with_attention(profile, cards()[card]["deviceVer"])
    if LIBRARY not in profile.workspaces:
        return profile
    asked = asked_in(profile, tf32)
    questions = list(dict.fromkeys(each for some in asked.values() for each in some or ()))
    try:
        _check_settings()
        answers = ask(card, questions) if questions else [Answers("", {})]
    except NoAnswerError as error:
        return replace(profile, told=[*profile.told, Note("cudnn_not_asked", {"card": card, "reason": str(error)})])
    told = [_workspaces(each, card) for each in answers]
    found, *others = (_with_each(profile, asked, each) for each in told)
    said = [*_notes(card, answers[0].version, told[0])] if told[0] else []
    for other, some, own in zip(others, answers[1:], told[1:], strict=True):
        differ = sum(each.bytes != told[0][at].bytes for at, each in own.items() if at in told[0])
        values = {"version": some.version, "mib": other.peak_bytes / MIB, "differ": differ, "count": len(own)}
        said.append(Note("cudnn_other", values))
    return replace(found, told=[*profile.told, *said, *found.told])


def asked_in(profile: MemoryProfile, tf32: bool) -> dict[int, list[CudnnConvolution] | None]:
    """Convolutions that cuDNN is asked for each step, by its place; None where who computes it is not known."""
    return {at: asked_of(step.call, tf32) for at, step in enumerate(profile.timeline) if step.call.packet in CALLS}


def _workspaces(answers: Answers, card: str) -> dict[CudnnConvolution, Workspace]:
    """The workspaces of the convolutions that cuDNN has a kernel for."""
    processors = cards()[card]["multiProcessorCount"] if answers.choices else 0
    choices = ((asked, each) for asked, each in answers.choices.items() if isinstance(each, CudnnChoice))
    return {asked: workspace(asked, choice, processors) for asked, choice in choices}


def _check_settings() -> None:
    """NoAnswerError where PyTorch is set to choose otherwise than by cuDNN's heuristics alone."""
    if torch.backends.cudnn.benchmark:
        raise NoAnswerError("torch.backends.cudnn.benchmark is on, so that PyTorch takes the fastest kernel by trying")
    if torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
        raise NoAnswerError("PyTorch is set to be deterministic, and leaves out kernels that are not")


def _with_each(
    profile: MemoryProfile,
    asked: Mapping[int, list[CudnnConvolution] | None],
    found: Mapping[CudnnConvolution, Workspace],
) -> MemoryProfile:
    """The profile with the workspaces that were found; `asked` has the convolutions of steps by their place.

    Its one note, where that is worth naming, tells the peak with the least and the most that a GPU took.
    """
    steps = list(profile.timeline)
    ends = [steps, [*steps], [*steps]]
    marks = dict(profile.marks)
    for at, some in asked.items():
        step = steps[at]
        if some is None or any(each not in found for each in some):
            marks[step.op] = "who computes this convolution, or what it takes, is not known"
            continue
        for one, key in zip(ends, ("bytes", "least", "most"), strict=True):
            one[at] = _with(step, [getattr(found[each], key) for each in some])
        if some and (kind := not_compared(step.call)):
            marks[step.op + ON_THIS_CARD] = f"no GPU was compared with what cuDNN says of convolutions: {kind}"
    peak, low, high = (max(step.live_bytes for step in each) for each in ends)
    told = []
    if low < (1 - WORTH_NAMING) * peak or high > (1 + WORTH_NAMING) * peak:
        lifted = {step.op for step in ends[2] if step.live_bytes > (1 + WORTH_NAMING) * peak}
        lowered = {step.op for step in steps if step.live_bytes > low} if low < (1 - WORTH_NAMING) * peak else set()
        why = "a GPU may take another workspace than cuDNN says without one"
        marks |= dict.fromkeys([op + ON_THIS_CARD for op in sorted(lifted | lowered)], why)
        told.append(Note("cudnn_range", {"low": low / MIB, "high": high / MIB}))
    libraries = {name: size for name, size in profile.workspaces.items() if name != LIBRARY}
    return replace(profile, timeline=steps, marks=marks, workspaces=libraries, told=told)


def _with(step: MemoryStep, sizes: Sequence[int]) -> MemoryStep:
    """A step whose convolutions take so many bytes each, one after the other, each before the outputs of later ones."""
    outputs = [Cuda.in_blocks(each.numel() * each.itemsize) for each in step.call.out]
    most = max((Cuda.in_blocks(size) - sum(outputs[at + 1 :]) for at, size in enumerate(sizes)), default=0)
    if most <= 0:
        return replace(step, workspace=0)
    # the sums of a bias's gradient are made after the workspace is freed, copies of arguments before it is taken
    with_bias = step.call.operator == "convolution_backward" and step.call.args[10][2]
    inner = max(step.inner, (*_copies(step.call), most), key=sum) if with_bias else (*step.inner, most)
    more = sum(inner) - sum(step.inner)
    return replace(step, inner=inner, live_bytes=step.live_bytes + more, workspace=0)


def _copies(call: Operation) -> list[int]:
    """Copies of a gradient's arguments that are not contiguous, where it is not computed with channels last."""
    maps = call.args[:3]
    is_last = any(each.is_channels_last for each in maps[1:])
    return [Cuda.in_blocks(each.numel() * each.itemsize) for each in maps if not (is_last or each.is_contiguous)]


def _notes(card: str, version: str, found: Mapping[CudnnConvolution, Workspace]) -> Iterator[Note]:
    """Notes on who was asked, the largest workspace, and what is not cuDNN's own answer."""
    asked, largest = max(found.items(), key=lambda each: each[1].bytes)
    values = {"version": version, "card": card, "count": len(found), "mib": largest.bytes / MIB}
    yield Note("cudnn_asked", {**values, "engine": largest.engine, "convolution": _said(asked)})
    if ruled := [each.bytes for each in found.values() if each.by_rule]:
        yield Note("cudnn_rule", {"count": len(ruled), "mib": max(ruled) / MIB})
    if card != COMPARED or not version.startswith(VERSIONS):
        yield Note("cudnn_elsewhere")


def _said(asked: CudnnConvolution) -> str:
    turn = {"forward": "forward", "image": "gradient of the input", "weight": "gradient of the weight"}[asked.turn]
    return f"{turn}, {'x'.join(map(str, asked.image))} by {'x'.join(map(str, asked.weight))}, {asked.dtype}"
