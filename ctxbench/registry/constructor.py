"""The argument of a constructor that gets the number of channels of the input, or the maker of a slot's block."""

import inspect
import re
from collections.abc import Sequence
from typing import Literal

# What a constructor gets: the number of channels of the input, what makes the block of a network's slot, or neither.
ConstructorArgument = Literal["channels", "module", ""]
# Names of a width that is the input's, and of one that may be a network's own.
_INPUT = re.compile(
    r"((num|n|input|in)_?)?(channels?|chans?|chs?|c|planes?|feats?|features|filters|dim|maps)(_?in)?"
    r"|inp|inc|cin|c_in|ch_in|dim_in|c1|nc|d|f_in|width_in|inplanes?"
)
_OWN = re.compile(
    r"(emb|embed|embedding|hidden|model|base)_?(dims?|size|channels|features|width)|d_model|n_embd|n?width|nf|nfeat"
)
# A first parameter with one of these in its name is no number of channels.
_OTHERS = re.compile(
    r"class|out|image|img|size|depth|layer|stage|head|kernel|group|ratio|reduc|stride|dilat|rate|scale|factor|resol|"
    r"dims|axes|drop|prob|bias|window|patch|level|token|seq|len|num_|^n_|^k$|^r$"
)
_MAKERS = re.compile(r"make\w*|(make_?)?(block|module)(_?(cls|class|fn))?")


def width_argument(parameters: Sequence[inspect.Parameter]) -> tuple[ConstructorArgument, str]:
    """Meaning of what a constructor gets, and the name of the argument for it, by names, defaults and annotations.

    A number of channels goes to a required argument that is called so, else to the only required one unless that is
    called otherwise, else to one with a default that is called so.
    """
    first = parameters[0] if parameters else None
    if first is None:
        return "", ""
    if first.kind is first.VAR_POSITIONAL:
        return "channels", first.name
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    required = [each for each in named if each.default is each.empty]
    if first in required and _is_maker(first):
        return "module", first.name
    width = next((each for each in required if is_width(each.name)), None)
    if not width and len(required) == 1 and not _OTHERS.search(required[0].name.lower()):
        width = required[0]
    if not width and not required:
        width = next((each for each in named if is_width(each.name) and type(each.default) in (int, type(None))), None)
    return ("channels", width.name) if width else ("", "")


def is_width(name: str) -> bool:
    """Return whether an argument of this name holds a number of channels that may be the input's."""
    return bool(_INPUT.fullmatch(name.lower()) or is_own(name))


def is_own(name: str) -> bool:
    """Return whether a width of this name may be a network's own, whatever the input."""
    return bool(_OWN.fullmatch(name.lower()))


def _is_maker(parameter: inspect.Parameter) -> bool:
    hint = str(parameter.annotation)
    return "Callable" in hint or "MakeModule" in hint or bool(_MAKERS.fullmatch(parameter.name))
