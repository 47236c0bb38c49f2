"""A predicted pass with the workspaces that cuDNN takes on a card."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from ctxbench.plugins.cudnn.ask import Answers, NoAnswerError, ask
from ctxbench.plugins.cudnn.choice import CALLS, Workspace, convolutions, workspace
from ctxbench.plugins.cudnn.library import CudnnChoice, CudnnConvolution
from ctxbench.plugins.memory.kernels import MemoryRules
from ctxbench.plugins.memory.profile import MIB, MemoryProfile, MemoryStep

LIBRARY = "cuDNN convolution"
# The card and the versions whose answers were compared with a GPU; the second gives those of the first.
COMPARED, VERSIONS = "h200", ("9.19.", "9.20.")
# A smaller part of the peak gets no mark.
WORTH_NAMING = 0.01
ROUND = MemoryRules("cuda").round


def with_workspaces(profile: MemoryProfile, card: str, tf32: bool) -> MemoryProfile:
    """The profile with cuDNN's workspaces of each convolution on a card, or with a sentence on why there are none."""
    if profile.device != "cuda" or LIBRARY not in profile.workspaces:
        return profile
    asked = {at: convolutions(step.call, tf32) for at, step in enumerate(profile.timeline) if step.call.packet in CALLS}
    questions = list(dict.fromkeys(each for some in asked.values() for each in some or ()))
    try:
        _check_settings()
        answers = ask(card, questions) if questions else [Answers("", {})]
    except NoAnswerError as error:
        return replace(profile, told=[*profile.told, f"cuDNN was not asked for its workspaces on {card}: {error}."])
    told = [
        {each: workspace(each, choice) for each, choice in some.choices.items() if isinstance(choice, CudnnChoice)}
        for some in answers
    ]
    found, *others = (_with_each(profile, asked, each) for each in told)
    said = [*_sentences(card, answers[0].version, told[0])] if told[0] else []
    for other, some, own in zip(others, answers[1:], told[1:], strict=True):
        differ = sum(each.bytes != told[0][at].bytes for at, each in own.items() if at in told[0])
        said.append(
            f"With cuDNN {some.version} the peak is {other.peak_bytes / MIB:,.1f} MiB, and {differ} of {len(own)} "
            "convolutions take another workspace."
        )
    return replace(found, told=[*profile.told, *said])


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
    """The profile with the workspaces that were found; `asked` has the convolutions of steps by their place."""
    steps, most = list(profile.timeline), list(profile.timeline)
    marks = dict(profile.marks)
    for at, some in asked.items():
        if some is None or any(each not in found for each in some):
            marks[steps[at].op] = "who computes this convolution, or what it takes, is not known"
        else:
            most[at] = _with(steps[at], [found[each].most for each in some])
            steps[at] = _with(steps[at], [found[each].bytes for each in some])
    marks |= _may_be_higher(steps, most)
    libraries = {name: size for name, size in profile.workspaces.items() if name != LIBRARY}
    return replace(profile, timeline=steps, marks=marks, workspaces=libraries)


def _may_be_higher(steps: Sequence[MemoryStep], most: Sequence[MemoryStep]) -> dict[str, str]:
    """A mark for each operator that may lift the peak by a share worth naming; `most` are steps at their highest."""
    found: dict[str, int] = {}
    peak = max(step.live_bytes for step in steps)
    for step in most:
        if step.live_bytes > (1 + WORTH_NAMING) * peak:
            found[step.op] = max(step.live_bytes, found.get(step.op, 0))
    why = "a GPU may take a larger workspace than cuDNN says without one, by what an H200 took: up to"
    return {op: f"{why} {size / MIB:,.1f} MiB" for op, size in found.items()}


def _with(step: MemoryStep, sizes: Sequence[int]) -> MemoryStep:
    """A step whose convolutions take so many bytes each, one after the other, each before the outputs of later ones."""
    outputs = [ROUND(each.numel() * each.itemsize) for each in step.call.out]
    most = max((ROUND(size) - sum(outputs[at + 1 :]) for at, size in enumerate(sizes)), default=0)
    if most <= 0:
        return replace(step, workspace=0)
    # the sums of a bias's gradient are made after the workspace is freed, copies of arguments before it is taken
    with_bias = step.call.operator == "convolution_backward" and step.call.args[10][2]
    inner = max(step.inner, (most,), key=sum) if with_bias else (*step.inner, most)
    more = sum(inner) - sum(step.inner)
    return replace(step, inner=inner, live_bytes=step.live_bytes + more, workspace=0)


def _sentences(card: str, version: str, found: Mapping[CudnnConvolution, Workspace]) -> Iterator[str]:
    """Sentences on who was asked, the largest workspace, and what is not cuDNN's own answer."""
    asked, largest = max(found.items(), key=lambda each: each[1].bytes)
    most = f"at most {largest.bytes / MIB:,.1f} MiB, in engine {largest.engine} ({_said(asked)})"
    yield (
        f"cuDNN {version} was asked without a GPU what {len(found)} convolutions take on {card}: "
        f"{most if largest.bytes else 'nothing'}."
    )
    if ruled := [each for each in found.values() if each.by_rule]:
        yield (
            f"{len(ruled)} of these engines it refuses without a device (cuBLAS's, Winograd's in steps, depthwise "
            "ones): a rule tells their workspace, up to "
            f"{max(each.bytes for each in ruled) / MIB:,.1f} MiB."
        )
    if card != COMPARED or not version.startswith(VERSIONS):
        yield f"These workspaces were compared with an {COMPARED.upper()} and cuDNN {VERSIONS[0]}x alone."


def _said(asked: CudnnConvolution) -> str:
    turn = {"forward": "forward", "image": "gradient of the input", "weight": "gradient of the weight"}[asked.turn]
    return f"{turn}, {'x'.join(map(str, asked.image))} by {'x'.join(map(str, asked.weight))}, {asked.dtype}"
