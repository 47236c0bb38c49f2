"""Values for the arguments that a constructor needs: tried ones, with which the module works."""

import inspect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ctxbench.registry.hyperparameter import CHANNELS, Hyperparameter, of_torch
from ctxbench.registry.maker import Maker, maker_of_function
from ctxbench.registry.reference import Reference

# At most so many combinations of values are put in order, and of these tried.
MOST_COMBINED, MOST_TRIALS = 4096, 48
# Values to try first, by what an argument is called; `size` stands for the height and width of the input.
_FIRST: Sequence[tuple[str, Sequence[Any]]] = (
    (r"head|group", (4, 8, 2)),
    (r"dims|axes|ndim", (2,)),
    (r"kernel|^k$|^ks$", (3, 7)),
    (r"reduc|ratio|^r$", (4, 8)),
    (r"resol|size|shape|feat_|^hw$", ("size", "height", 7, (7, 7), 3)),
    (r"window|patch", (7, 4, (4, 4), (7, 7))),
    (r"len|token|positions|^n$|seq", ("count",)),
    (r"class", (10,)),
    (r"norm", ("nn.BatchNorm2d", "nn.LayerNorm")),
    (r"act", ("nn.GELU",)),
)
_ANY: Sequence[Any] = (CHANNELS, 4, 2, "size", 8, 3, 1, (4, 4), "count")


def missing(known: Sequence[Hyperparameter], hparams: Mapping[str, Any]) -> list[str]:
    """The required hyper-parameters that have no value."""
    return [each.name for each in known if each.required and each.name not in hparams]


def working(
    make: Any, names: Sequence[str], channels: int, hparams: Mapping[str, Any], size: tuple[int, int]
) -> dict[str, Any]:
    """Values of these arguments with which a module takes an input, the likeliest first; none if none was found.

    A value may be the word `channels`.
    """
    from ctxbench.registry.layout import accepts

    maker = make if isinstance(make, Maker) else maker_of_function(make.__name__, make)
    stand_ins = {"size": size, "height": size[0], "count": size[0] * size[1]}
    most = max(2, round(MOST_COMBINED ** (1 / len(names))))
    choices = [list(enumerate(stand_ins.get(str(each), each) for each in _values(name)))[:most] for name in names]
    trials = sorted(itertools.product(*choices), key=lambda trial: sum(place for place, _ in trial))
    for trial in trials[:MOST_TRIALS]:
        chosen = {name: value for name, (_, value) in zip(names, trial, strict=True)}
        values = {name: channels if value == CHANNELS else of_torch(value) for name, value in chosen.items()}
        given = {**hparams, **values}
        if accepts(partial(maker.build, channels, given, size), channels, size, kept=True):
            return chosen
    return {}


def sentence(make: Any, reference: str, needed: Sequence[str], found: Mapping[str, Any], shape: Sequence[int]) -> str:
    """Sentence on needed arguments, with the whole command that works if values were `found`."""
    named = Reference.parse(reference)
    reference = str(named.at(named.shown_source))
    needs = f"{named.name} needs a value for {', '.join(needed)}"
    if found:
        return f"{needs}; this works: ctxbench show {reference} --shape {','.join(map(str, shape))} {options(found)}"
    if len(inputs := _inputs(make)) > 1:
        return (
            f"{needs}, and its forward takes {', '.join(inputs)}, more than a map: ctxbench new --around {reference} "
            "prints a module to put around it"
        )
    return f"{needs}: {' '.join(f'--set {each}=VALUE' for each in needed)}"


def _inputs(make: Any) -> list[str]:
    """The inputs that a pass of a class's modules needs."""
    forward = getattr(make.function if isinstance(make, Maker) else make, "forward", None)
    taken = [*inspect.signature(forward).parameters.values()][1:] if forward else []
    return [each.name for each in taken if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]


def options(values: Mapping[str, Any]) -> str:
    """Values as options of a command: `--set heads=4 --set 'size=(7, 7)'`."""
    texts = (f"{name}={value}" for name, value in values.items())
    return " ".join(f"--set '{text}'" if " " in text else f"--set {text}" for text in texts)


def _values(name: str) -> Iterator[Any]:
    first = next((values for words, values in _FIRST if re.search(words, name.lower())), ())
    yield from dict.fromkeys((*first, *_ANY))
