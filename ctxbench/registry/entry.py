"""Description of one context module without importing it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxbench.base.errors import UsageError, unknown
from ctxbench.registry import asking
from ctxbench.registry.constructor import ConstructorArgument
from ctxbench.registry.formula import evaluate
from ctxbench.registry.hyperparameter import BESIDE, Hyperparameter, as_lists, as_tuples, choices_of
from ctxbench.registry.load import import_maker
from ctxbench.registry.maker import Maker, maker_of_function, no_tokens, written
from ctxbench.registry.reference import Reference
from ctxbench.registry.trust import check_settings

if TYPE_CHECKING:
    from torch import nn

# What `reach` says where the values of the input decide it.
BY_CONTENT = "by content"
# Side of a map that is larger than any window.
_LARGE = 2**20


@dataclass(frozen=True)
class Entry:
    """Description of one context module without importing it.

    `params`, `macs`, `out_channels` and `reach` are closed forms (see `ctxbench.formula`) over `B, C, H, W`, `n = H*W`,
    `N = B*n` and the hyper-parameters; a hyper-parameter that is None stands for `C`. `macs` follows torchprofile's
    convention. `position_mixing` says whether an output depends on which far position a value is at, or only on a mean
    over the positions; it may be a condition on the hyper-parameters in the same language. `reach` is how many
    positions the one in the centre reaches, or BY_CONTENT. `stops_gradient` says, like `position_mixing`, whether a
    part is computed without a gradient on purpose. What is not `listed` is known by its key alone. `given` is
    what the constructor gets, by the argument `width` if that is known; what gets no number of channels is a whole
    network, or a block of one width. For readers, `complexity` is the growth in n and C, `public_code` where another
    version is, with its licence, `about` the first paragraph of the file's docstring, `details` that of the class,
    which has the hyper-parameters' meaning. `reference` (`package.module:Class` or `/path/file.py:Class`) is what
    `load` imports. `made_for` is the one number of channels that an instance takes, `takes` a layout other than
    [B, C, H, W] that its arguments say. One that is `open` takes arguments of any name (`**kwargs`), which are passed
    on. Of what is not `declared` by @register only the constructor is known. `said_by` is the file that names it.
    """

    key: str
    reference: str
    file: str
    title: str = ""
    paper: str = ""
    year: int | None = None
    family: str = "other"
    params: str | None = None
    macs: str | None = None
    out_channels: str = "C"
    complexity: str = ""
    position_mixing: bool | str = True
    reach: str = "n"
    stops_gradient: bool | str = False
    listed: bool = True
    public_code: str = ""
    given: ConstructorArgument = "channels"
    hyperparameters: tuple[Hyperparameter, ...] = ()
    about: str = ""
    details: str = ""
    broken: str | None = None
    made_for: int | None = None
    takes: str = ""
    width: Hyperparameter | None = None
    declared: bool = True
    open: bool = False
    said_by: str = ""

    def load(self) -> "type[nn.Module] | Maker":
        """Import the module's class, or what else makes its modules. This runs the code of its file."""
        if self.broken:
            raise UsageError(f"module {self.key!r} cannot be loaded: {self.broken}")
        return import_maker(Reference.parse(self.reference))

    def build(
        self, channels: int, hparams: Mapping[str, Any] | None = None, size: tuple[int, int] | None = None
    ) -> "nn.Module":
        """Construct the module for `channels` input channels; hyper-parameters not given keep their defaults.

        `size` is the height and width of the input, where they are known: what the module takes is tried with them.
        """
        make, given = self._settled(channels, hparams or {}, size)
        return make.build(channels, given, size) if isinstance(make, Maker) else make(channels, **given)

    def call(self, channels: int, hparams: Mapping[str, Any] | None = None, size: tuple[int, int] | None = None) -> str:
        """The call that `build` makes, with the line of what is called: `mine.py:7 Strided(stride=4, width=32)`."""
        make, given = self._settled(channels, hparams or {}, size)
        maker = make if isinstance(make, Maker) else maker_of_function(self.key, make)
        named = Reference.parse(self.reference)
        text = written(named.shown_source, named.name, maker.function, maker.arguments(channels, given, size))
        beside = 0 if self.takes_setting(BESIDE.name) else given.get(BESIDE.name, 0)
        return text + f", {BESIDE.name}={beside}" * (beside > 0)

    def _settled(
        self, channels: int, hparams: Mapping[str, Any], size: tuple[int, int] | None
    ) -> "tuple[type[nn.Module] | Maker, dict[str, Any]]":
        """Maker of the module, and its hyper-parameters. UsageError where one is needed that was not given."""
        make, given = self.load(), self.check_hparams(hparams, channels)
        if not self.takes_setting(BESIDE.name) and (count := given.get(BESIDE.name, 0)) < 0:
            raise UsageError(f"{BESIDE.name} is {count}; it must be 0 or more")
        if not isinstance(make, Maker) and not self.takes_setting(BESIDE.name) and given.pop(BESIDE.name, 0):
            raise UsageError(no_tokens(self.key))
        if needed := asking.missing(self.hyperparameters, given):
            height, width = size or (16, 32)
            found = asking.working(make, needed, channels, given, (height, width))
            shape = (1, channels, height, width)
            found = found and {**{name: as_tuples(value) for name, value in hparams.items()}, **found}
            raise UsageError(asking.sentence(make, self.reference, needed, found, shape))
        return make, given

    @property
    def configs(self) -> set[str]:
        """The configs whose fields are hyper-parameters: `cfg` of `cfg.heads`, `cfg.attn` of `cfg.attn.heads`."""
        return {each.name.rpartition(".")[0] for each in self.hyperparameters if "." in each.name}

    def check_hparams(self, hparams: Mapping[str, Any], channels: int | None = None) -> dict[str, Any]:
        """The given hyper-parameters, each checked against its declared name and type.

        With `channels`, the word `channels` is replaced by that number. UsageError for what it does not have, and for a
        number of channels that an instance is not made for.
        """
        if channels and self.made_for not in (None, channels):
            raise UsageError(
                f"{self.key} is made for {self.made_for} channels and not for {channels}: take inputs "
                f"[B, {self.made_for}, H, W], or give its class, or a function of channels"
            )
        if self.said_by:
            check_settings(Reference.read(self.reference, Path(self.said_by)), hparams)
        known = self._settable if self.declared else {BESIDE.name: BESIDE, **self._settable}
        for name in [each for each in hparams if each not in known]:
            if not self.passes_on(name):
                raise unknown(f"hyper-parameter of {self.key!r}", name, known)
            known[name] = Hyperparameter(name, "typing.Any", None)
        if channels is None:
            return {name: as_lists(known[name].parse(value)) for name, value in hparams.items()}
        hparams = {n: channels if known[n].stands_for_channels(value) else value for n, value in hparams.items()}
        return {name: known[name].passed(known[name].parse(value)) for name, value in hparams.items()}

    def choices(self, name: str, given: Any) -> list[Any]:
        """The values of a hyper-parameter among which a run chooses: of a list each, or one."""
        return self._settable[name].choices(given) if name in self._settable else choices_of(given)

    def takes_setting(self, name: str) -> bool:
        """Return whether an argument is called so."""
        return name in self._settable

    def passes_on(self, name: str) -> bool:
        """Return whether an argument of this name, which none is called, is passed on."""
        return self.open and name.isidentifier()

    @property
    def _settable(self) -> dict[str, Hyperparameter]:
        """All arguments by name, also that for the number of channels."""
        return {each.name: each for each in (*self.hyperparameters, *filter(None, [self.width]))}

    @property
    def plain(self) -> str:
        """All of it as JSON, for another process; a default that JSON cannot hold, as text."""
        parameters = [vars(each) for each in self.hyperparameters]
        width = vars(self.width) if self.width else None
        return json.dumps({**vars(self), "hyperparameters": parameters, "width": width}, default=repr)

    @staticmethod
    def of_plain(text: str) -> "Entry":
        """The entry that another process has told."""
        facts = json.loads(text)
        parameters, width = (Hyperparameter(**each) for each in facts.pop("hyperparameters")), facts.pop("width")
        return Entry(**facts, hyperparameters=tuple(parameters), width=Hyperparameter(**width) if width else None)

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of all hyper-parameters as JSON has them; what it cannot hold, as text."""
        found: dict[str, Any] = json.loads(json.dumps({p.name: p.default for p in self.hyperparameters}, default=repr))
        return found

    def closed_form(
        self, which: str, shape: tuple[int, int, int, int], hparams: Mapping[str, Any] | None = None
    ) -> int | None:
        """Evaluate the closed form `params`, `macs`, `out_channels` or `reach` for a shape; None if there is none."""
        formula: str | None = getattr(self, which)
        if formula is None or formula == BY_CONTENT:
            return None
        batch, channels, height, width = shape
        values = self._values(self.check_hparams(hparams or {}, channels))
        names = {name: channels if value is None else value for name, value in values.items()}
        positions = height * width
        names |= {"B": batch, "C": channels, "H": height, "W": width}
        names |= {"n": positions, "N": batch * positions}
        return evaluate(formula, names)

    def output_width(self, shape: tuple[int, int, int, int], hparams: Mapping[str, Any] | None = None) -> int | None:
        """The declared number of output channels for an input of a shape; None of a class that declares nothing."""
        return self.closed_form("out_channels", shape, hparams) if self.declared else None

    def mixes_positions(self, hparams: Mapping[str, Any] | None = None) -> bool:
        """Return whether the module is declared to mix positions with these hyper-parameters."""
        return bool(evaluate(f"1 if {self.position_mixing} else 0", self._values(hparams)))

    def stops(self, hparams: Mapping[str, Any] | None = None) -> bool:
        """Return whether the module is declared to stop a gradient on purpose with these hyper-parameters."""
        return bool(evaluate(f"1 if {self.stops_gradient} else 0", self._values(hparams)))

    def locality(self, shape: tuple[int, int, int, int], hparams: Mapping[str, Any] | None = None) -> str:
        """The positions that a local block reaches, `local: 7 x 7`; "" of one that reaches far ones on a large map."""
        large, reached = (self.closed_form("reach", each, hparams) for each in ((*shape[:2], _LARGE, _LARGE), shape))
        if reached is None or large == _LARGE**2 or self.mixes_positions(hparams):
            return ""
        side = math.isqrt(reached)
        return f"local: {side} x {side}" if side**2 == reached else f"local: {reached:,} positions"

    def _values(self, hparams: Mapping[str, Any] | None) -> dict[str, Any]:
        return {p.name: p.default for p in self.hyperparameters} | dict(hparams or {})
