"""The first argument of a class, or of a function that builds a module: channels, the maker of a block, or nothing."""

import inspect
import re
from collections.abc import Sequence
from typing import Literal

# The first argument: the number of channels of the input, what makes the block of a network's slot, or none.
Given = Literal["channels", "module", ""]
# A first parameter that has a default and one of these in its name is no number of channels.
_OTHERS = re.compile(r"class|out|image|img|size|depth|layer|stage|head|kernel")
_MAKERS = re.compile(r"make\w*|(make_?)?(block|module)(_?(cls|class|fn))?")


def first_argument(parameters: Sequence[inspect.Parameter]) -> Given:
    """The meaning of the first parameter of a constructor, by its name, default and annotation."""
    first = parameters[0] if parameters else None
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        return ""
    if first.default is first.empty:
        is_maker = "Callable" in str(first.annotation) or "MakeModule" in str(first.annotation)
        return "module" if is_maker or _MAKERS.fullmatch(first.name) else "channels"
    is_number = first.default is None or type(first.default) is int
    return "channels" if is_number and not _OTHERS.search(first.name.lower()) else ""
