"""A predicted pass with the workspaces that cuDNN takes on a card."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ctxbench.plugins.cudnn.ask import NoAnswerError, ask
from ctxbench.plugins.cudnn.choice import CALLS, Workspace, convolutions, workspace
from ctxbench.plugins.cudnn.library import Choice, Convolution
from ctxbench.plugins.memory.kernels import MemoryRules
from ctxbench.plugins.memory.profile import MIB, MemoryProfile, MemoryStep

LIBRARY = "cuDNN convolution"
# The card whose GPU was compared with the answers.
COMPARED = "h200"
ROUND = MemoryRules("cuda").round


def with_workspaces(profile: MemoryProfile, card: str, tf32: bool) -> MemoryProfile:
    """The profile with cuDNN's workspaces of each convolution on a card, or with a sentence on why there are none."""
    if profile.device != "cuda" or LIBRARY not in profile.workspaces:
        return profile
    asked = {at: convolutions(step.call, tf32) for at, step in enumerate(profile.timeline) if step.call.packet in CALLS}
    questions = list(dict.fromkeys(each for some in asked.values() for each in some or ()))
    try:
        answers = ask(card, questions) if questions else None
    except NoAnswerError as error:
        return replace(profile, told=[*profile.told, f"cuDNN was not asked for its workspaces on {card}: {error}."])
    told = answers.choices if answers else {}
    found = {each: workspace(each, choice) for each, choice in told.items() if isinstance(choice, Choice)}
    steps = list(profile.timeline)
    marks = dict(profile.marks)
    for at, some in asked.items():
        if some is None or any(each not in found for each in some):
            marks[steps[at].op] = "who computes this convolution, or what it takes, is not known"
        else:
            steps[at] = _with(steps[at], [found[each].bytes for each in some])
    libraries = {name: size for name, size in profile.workspaces.items() if name != LIBRARY}
    said = _sentences(card, answers.version, found) if answers and found else ()
    return replace(profile, timeline=steps, marks=marks, workspaces=libraries, told=[*profile.told, *said])


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


def _sentences(card: str, version: str, found: Mapping[Convolution, Workspace]) -> Iterator[str]:
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
    if card != COMPARED:
        yield f"No {card} has confirmed these workspaces: they were compared with an {COMPARED.upper()} alone."


def _said(asked: Convolution) -> str:
    turn = {"forward": "forward", "image": "gradient of the input", "weight": "gradient of the weight"}[asked.turn]
    return f"{turn}, {'x'.join(map(str, asked.image))} by {'x'.join(map(str, asked.weight))}, {asked.dtype}"
