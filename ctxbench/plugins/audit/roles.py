"""Roles of the parameters of a module: biases, parts of normalisations, scales; told by a pass, not by names."""

from dataclasses import dataclass

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ctxbench.base.errors import text_of
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.watch import UncountableError

# A layer of vectors alone that computes one of these of its input is a normalisation, such as GRN.
_STATISTICS = {"linalg_vector_norm", "norm", "var", "var_mean", "std", "std_mean", "sqrt", "rsqrt"}
_ADDITIONS = {"add", "sub", "rsub"}
# A product adds its argument of this name.
_ADDED = {"convolution": "bias", "_convolution": "bias", "addmm": "self", "addmv": "self", "baddbmm": "self"}


@dataclass(frozen=True)
class Roles:
    """Numbers of parameters by role. A vector has one number for each channel: one axis that is longer than 1.

    `bias`: vectors that are added, those of normalisations included. `norm`: all of normalisations. `vectors`: these
    two, and vectors that multiply, such as LayerScale.
    """

    bias: int
    norm: int
    vectors: int


def roles_of(calls: Calls) -> Roles:
    """The roles, by a pass in eval mode on the meta device. UncountableError if it needs data."""
    try:
        operators = [each for each in calls.operators if each.is_whole]
    except Exception as error:
        reason = text_of(error).partition(chr(10))[0]
        raise UncountableError(f"{type(calls.module).__name__}: {reason}") from error
    # vectors are known by their storage, all of which the calls hold
    vectors = {_key(each): each.numel() for each in calls.copy.parameters() if is_vector(each)}
    added, norm, scales = set[int](), set[int](), set[int]()
    for call in operators:
        name = call.name.removeprefix("aten::")
        if name in _STATISTICS and call.layers:
            own = {_key(each) for each in call.layers[-1].parameters()}
            norm |= own if own <= vectors.keys() else set()
        for place, leaves in enumerate(map(tree_leaves, call.args)):
            taken = {_key(each) for each in leaves if isinstance(each, Tensor)} & vectors.keys()
            argument = call.func._schema.arguments[place].name
            if "_norm" in name and name not in _STATISTICS:
                norm |= taken
                added |= taken if argument == "bias" else set()
            elif name in _ADDITIONS or _ADDED.get(name) == argument:
                added |= taken
            elif name == "mul":
                scales |= taken
    return Roles(*(sum(vectors[key] for key in each) for each in (added, norm, norm | added | scales)))


def is_vector(parameter: Tensor) -> bool:
    """Return whether at most one axis is longer than 1."""
    return sum(size > 1 for size in parameter.shape) <= 1


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
