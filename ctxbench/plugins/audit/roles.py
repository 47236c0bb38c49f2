"""Roles of the parameters of a module: biases, parts of normalisations, scales; told by a pass, not by names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ctxbench.base.errors import text_of
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.plugins.macs.counter import UncountableError, repeatable

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


@without_compiler()
def roles_of(model: nn.Module, x: Tensor) -> Roles:
    """The roles, by a pass of `model` in eval mode on the meta device. UncountableError if it needs data."""
    watch = _Watch(model)
    was_training = model.training
    try:
        with repeatable(), torch.no_grad(), watch:
            model.eval()(x)
    except Exception as error:
        raise UncountableError(f"{type(model).__name__}: {text_of(error).partition(chr(10))[0]}") from error
    finally:
        model.train(was_training)
        watch.remove()
    owned = [watch.of_normalisation(each) for each in watch.normalisations]
    norm = watch.norm.union(*owned)
    return Roles(
        *(sum(watch.vectors[key] for key in each) for each in (watch.added, norm, norm | watch.added | watch.scales))
    )


@dataclass(eq=False)
class _Watch(TorchDispatchMode):
    """Sees which operators take a vector, and which layers compute statistics; vectors are known by their storage."""

    model: nn.Module
    vectors: dict[int, int] = field(default_factory=dict)
    added: set[int] = field(default_factory=set)
    norm: set[int] = field(default_factory=set)
    scales: set[int] = field(default_factory=set)
    normalisations: set[nn.Module] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate its modes
        parameters = [each for each in self.model.parameters() if is_vector(each)]
        self.vectors = {_key(each): each.numel() for each in parameters}
        self._running: list[nn.Module] = []
        self._hooks = [hook for each in self.model.modules() for hook in self._hooked(each)]

    def _hooked(self, module: nn.Module) -> list[Any]:
        return [
            module.register_forward_pre_hook(lambda layer, _: self._running.append(layer)),
            module.register_forward_hook(self._left),
        ]

    def _left(self, *_: Any) -> None:
        self._running.pop()

    def remove(self) -> None:
        """Take the hooks off the module."""
        for each in self._hooks:
            each.remove()

    def of_normalisation(self, module: nn.Module) -> set[int]:
        """The parameters of a layer that has nothing but vectors; none of another layer."""
        own = [_key(each) for each in module.parameters()]
        return set(own) if self.vectors.keys() >= {*own} else set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.name().partition(".")[0].removeprefix("aten::").removesuffix("_")
        if name in _STATISTICS and self._running:
            self.normalisations.add(self._running[-1])
        for place, leaves in enumerate(map(tree_leaves, args)):
            taken = {_key(each) for each in leaves if isinstance(each, Tensor)} & self.vectors.keys()
            argument = func._schema.arguments[place].name
            if "_norm" in name and name not in _STATISTICS:
                self.norm |= taken
                self.added |= taken if argument == "bias" else set()
            elif name in _ADDITIONS or _ADDED.get(name) == argument:
                self.added |= taken
            elif name == "mul":
                self.scales |= taken
        return func(*args, **(kwargs or {}))


def is_vector(parameter: Tensor) -> bool:
    """Return whether at most one axis is longer than 1."""
    return sum(size > 1 for size in parameter.shape) <= 1


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
