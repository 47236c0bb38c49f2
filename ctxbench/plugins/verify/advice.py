"""The hint at an error of a module: what to type or to write."""

from ctxbench.plugins.verify.contract import option
from ctxbench.plugins.verify.subject import Subject
from ctxbench.registry.layout import width_of
from ctxbench.registry.reference import Reference
from ctxbench.results.sources import relative_reference

CUDA = "do not call .cuda(): make tensors with device=x.device, or register them as buffers"
# By words of an error.
HINTS = {
    "Module.__init__() call": "call super().__init__() first in the constructor",
    "NVIDIA driver": CUDA,
    "not compiled with CUDA": CUDA,
    "__init__() takes 1 positional argument": "give the constructor an argument `channels`, before all others",
    "got multiple values for argument": "let the constructor take `channels` as its first argument",
}
# An input of another layout, or more than one.
OTHER_INPUT = ("missing 1 required positional", "required positional arguments", "unpack")
NETWORK = "for a whole network use `ctxbench predict`, `memory`, `profile` or `show`, with --shape 1,3,512,512"
OWN = "the module raised this error; fix it and verify again"


def advice(error: BaseException, subject: Subject) -> str:
    """Hint at what to do about an error, by its words and by the widths of the module's weights."""
    text = str(error)
    if hint := next((hint for words, hint in HINTS.items() if words in text), ""):
        return hint
    if any(words in text for words in OTHER_INPUT):
        reference = relative_reference(subject.entry.reference)
        if Reference.parse(reference).is_object:
            reference = "FILE.py:CLASS"
        return f"it does not take a map alone: `ctxbench new --around {reference}` prints a module to put around it"
    width, _ = width_of(subject.build)
    if width not in (None, subject.channels):
        channels = option(f"verify --channels {width}", f"channels={width}")
        return f"it is made for {width} channels: {channels}, compare --shape 1,{width},64,64"
    return OWN if subject.entry.given == "channels" else f"it takes no number of channels; {NETWORK}"
