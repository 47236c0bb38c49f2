"""One point of a suite, and how it is measured."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ctxbench import registry
from ctxbench.base import limits
from ctxbench.base.dtypes import DTYPES
from ctxbench.base.errors import UsageError
from ctxbench.devices import META, has_clock
from ctxbench.model.conditions import CONDITIONS, SHAPE, Conditions, Shape
from ctxbench.registry import networks
from ctxbench.registry.entry import Entry
from ctxbench.registry.reference import Reference

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# The module that leaves a network's slot empty.
EMPTY = "identity"


def as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Threads = Annotated[int, AfterValidator(limits.THREADS.check)]
WholeNumber = Annotated[int, AfterValidator(limits.NUMBERS.check)]
Share = Annotated[float, AfterValidator(limits.SHARE.check)]
Minutes = Annotated[float, AfterValidator(limits.MINUTES.check)]
_Processes = Annotated[int, AfterValidator(limits.PROCESSES.check)]
Repeats = Annotated[int, AfterValidator(limits.REPEATS.check)]
Seconds = Annotated[float, AfterValidator(limits.SECONDS.check)]
_Pause = Annotated[float, AfterValidator(limits.PAUSE.check)]
OneOrMore = BeforeValidator(as_list)


# Of every table of a suite file: unknown keys and other types are errors. A schema takes milliseconds to make, so it is
# made when it is needed: most are parts of another one.
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Measure(BaseModel):
    """Latency measurement of a case: in how many processes, and how long in each, for each mode (infer, train).

    A latency's interval is over `processes`, which are fresh interpreters; fewer than three give none.
    `malloc` "keep": a CPU process keeps the memory that it frees; "default": as users' own processes do.
    `interval`: blocks until the 95 % interval of the median is within `target` of it on either side, or `sample_s` is
    spent, and for `min_time_s` at least.
    `paper`: `repeats` blocks of `passes` passes each, as Table 3 of the Hamburger paper was measured (20 of 100).
    With `total_s`, seconds for the whole suite, rows whose interval is wider than `spread` on either side get more
    processes, the cheapest first, and the costliest get fewer where the time does not last for all. A first pass of
    `long_pass_s` or more is the only sample of a process that has run the module in another mode before.
    On a GPU the cases of a round share a process, unless `alone` is set.
    `memory_device` is what the predicted peak is for: CUDA under the installed PyTorch, or under that of 2020.
    `compile_timeout_s` is for compiling or exporting the module for a mode, `timeout_s` for all that has no limit of
    its own.
    What else it holds are settings of metrics, which `ctxbench.model.suite_file` has checked.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, defer_build=True)

    processes: _Processes = 5
    malloc: Literal["keep", "default"] = "keep"
    alone: bool = False
    protocol: Literal["interval", "paper"] = "interval"
    target: Annotated[float, Field(gt=0, lt=1)] = 0.02
    sample_s: Seconds = 2.0
    total_s: Seconds | None = None
    spread: Annotated[float, Field(gt=0, lt=1)] = 0.05
    long_pass_s: Seconds | None = None
    warmup_s: _Pause = 0.5
    min_time_s: _Pause = 0.0
    min_samples: Repeats = 1
    repeats: Repeats = 20
    passes: Repeats = 100
    flush_l2: bool = False
    memory_device: Literal["cuda", "cuda-2020"] = "cuda"
    cudnn_benchmark: bool = False
    memory_limit_gib: Annotated[float, AfterValidator(limits.MEMORY_GIB.check)] | None = None
    timeout_s: Seconds = 600.0
    compile_timeout_s: Seconds = 600.0
    seed: Annotated[int, AfterValidator(limits.SEED.check)] = 0


@dataclass(frozen=True)
class Case(Conditions):
    """One point of a suite: a module with its hyper-parameters, an input, and the conditions.

    With a `network`, `shape` is that network's input, and the module is in its slot.

    `hparams` are the hyper-parameters that were chosen, `defaults` those of the module, as JSON has them.
    """

    module: str
    reference: str
    hparams: Mapping[str, Any]
    shape: Shape
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> Entry:
        """The registry's entry of the module; its class is imported if it is none of ctxbench's own."""
        # A table of an early version has no references.
        is_own = f"{self.reference or registry.BUILT_IN}.".startswith(f"{registry.BUILT_IN}.")
        return registry.get(self.module if is_own and self.module in registry.names() else self.reference)

    @property
    def sources(self) -> dict[str, str]:
        """The files of the module and of its network, by their names."""
        found = {self.module: self.entry.file}
        return {**found, self.network: str(networks.file_of(self.network))} if self.network else found

    @property
    def is_known(self) -> bool:
        """Return whether the module is one of ctxbench's own."""
        return self.entry.reference.startswith(f"{registry.BUILT_IN}.")

    def build(self) -> "nn.Module":
        """The module, in its network if it has one; its lazy layers have the shapes of this input."""
        from ctxbench.meta.built import initialised

        if not self.network:
            return initialised(self.entry.build(self.shape[1], self.hparams, self.shape[2:]), self.shape)
        network = networks.get(self.network)
        return initialised(
            network.build(lambda channels: self.entry.build(channels, self.hparams), self.shape), self.shape
        )

    @property
    def call(self) -> str:
        """The call that builds the module, with its file and line; in a network, whose slots decide, its name alone."""
        if self.network:
            return f"{self.reference or self.module} in {self.network}"
        return self.entry.call(self.shape[1], self.hparams, self.shape[2:])

    def without(self) -> "Case":
        """The same network with an empty slot."""
        entry = registry.get(EMPTY)
        return replace(self, module=entry.key, reference=entry.reference, hparams={}, defaults={})

    def made(self, device: "torch.device") -> "nn.Module":
        """The module with random weights on a device, in the case's dtype and layout."""
        import torch

        from ctxbench.meta.built import converted

        model = converted(self.build(), device, self.parameter_dtype)
        if self.memory_format == "channels_last":
            torch.nn.utils.convert_conv2d_weight_memory_format(model, torch.channels_last)
        return model

    def laid_out(self, x: "Tensor") -> "Tensor":
        """An input in the case's layout."""
        import torch

        return x.to(memory_format=torch.channels_last) if self.memory_format == "channels_last" else x

    def on_meta(self) -> "tuple[nn.Module, Tensor]":
        """The module and its input as they are measured, on the meta device: without data."""
        import torch

        from ctxbench.meta.built import after_first_pass, without_data
        from ctxbench.meta.outputs import trained_input
        from ctxbench.meta.without_compiler import without_compiler

        with without_compiler():
            model = without_data(lambda: self.made(torch.get_default_device()))
            x = self.laid_out(torch.empty(self.shape, dtype=self.parameter_dtype, device="meta"))
            model = model if self.is_known else after_first_pass(model, x)
            return model, trained_input(model, x)

    @property
    def parameter_dtype(self) -> "torch.dtype":
        """Of weights and input."""
        return _dtype(DTYPES[self.dtype].parameters)

    @property
    def autocast_dtype(self) -> "torch.dtype | None":
        """Of products under autocast; None without it."""
        name = DTYPES[self.dtype].autocast
        return _dtype(name) if name else None

    @property
    def title(self) -> str:
        """The module's key, and its network."""
        return f"{self.module}{self._inside}"

    @property
    def _inside(self) -> str:
        """` in NETWORK`, of a file the function's name alone; "" for a module alone."""
        return f" in {Reference.parse(self.network).name}" if self.network else ""

    @property
    def id(self) -> str:
        """A readable name, unique in a run: what was chosen is spelled out."""
        hparams = ",".join(f"{name}={value}" for name, value in sorted(self.hparams.items()))
        module = f"{self.module}({hparams})" if hparams else self.module
        return " ".join(filter(None, [f"{module}{self._inside}", *self._id_texts(*CONDITIONS)]))

    @property
    def passes(self) -> str:
        """A name that cases share whose passes are the same: those that differ in devices without a clock alone."""
        device = self.device if has_clock(self.device) else META
        return f"{device} {replace(self, device=device).id}"

    @property
    def computed_in(self) -> str:
        """The dtype, and a layout other than the default: `bfloat16 channels_last`."""
        return " ".join(self._id_texts("dtype", "memory_format"))

    def _id_texts(self, *conditions: str) -> list[str]:
        values = ((CONDITIONS[name], getattr(self, name)) for name in conditions)
        return [each.id_text(value) for each, value in values if each.is_shown(value)]

    @property
    def hparams_json(self) -> str:
        """All hyper-parameters, defaults included."""
        return json.dumps(dict(sorted({**self.defaults, **self.hparams}.items())))

    @property
    def changed(self) -> str:
        """The names of the hyper-parameters that differ from the defaults."""
        return " ".join(sorted(name for name, value in self.hparams.items() if value != self.defaults.get(name)))


def _dtype(name: str) -> "torch.dtype":
    import torch

    found: torch.dtype = getattr(torch, name)
    return found


def one_case(module: str, conditions: Mapping[str, Any], hparams: Mapping[str, Any]) -> Case:
    """A module under one value of each condition, at its network's own input or the default one where none is given.

    UsageError for a wrong module or hyper-parameter, and for a network of an input that is not given.
    """
    entry = registry.get(module)
    if entry.given != "channels" and "shape" not in conditions:
        raise UsageError(f"{entry.key} takes no number of channels; give its input, such as --shape 1,3,224,224")
    own = networks.shape_of(conditions["network"]) if conditions.get("network") else None
    if entry.made_for and not own:
        own = (SHAPE.default[0], entry.made_for, *SHAPE.default[2:])
    network = registry.absolute(conditions.get("network", ""))
    settled = {"shape": own or SHAPE.default, **conditions, "network": network}
    return Case(entry.key, entry.reference, entry.check_hparams(hparams), defaults=entry.defaults, **settled)
