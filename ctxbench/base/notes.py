"""Notes on a record's numbers, as data: a code and values; and the words of the codes, to which plugins add."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ctxbench.base.errors import UsageError
from ctxbench.plugin import brought

# The code of a note on a number that another seed changes, which no gate compares.
DRAWN = "drawn"
# The codes of notes after which no verdict rests on a row's times, or on the row.
DISTURBED, BROKEN = "disturbed", "broken_contract"
# The code of a note on a block that takes another form than a map, whose copy to that form is a part of the row.
WRAPPED = "wrapped"
# The code of a note on work that a number does not include.
LACKS = "lacks"
# The code of a note on which share of a predicted time is in classes of kernels that nothing measured.
UNMEASURED = "time_assumed"
# Codes of notes that stand beside a row's name where there is room for a few words, and the words.
SHORT = {BROKEN: "does not meet the contract", "mark": "{text}", WRAPPED: "takes {takes}"}
TEXTS: dict[str, str | tuple[str, str]] = {
    "remark": "{text}",
    "mark": "{text}",
    WRAPPED: (
        "The block takes {takes}: ctxbench copies the map [B, C, H, W] to that layout. The copy is a part of this "
        "row's memory and times; memory and profile list it as the wrapper's layout."
    ),
    "lacks": "It does not include {work}.",
    "time_assumed": (
        "{share:.0%} of the time is in classes without measurements: {classes}.",
        "A part of the time is in classes without measurements: {classes}.",
    ),
    "not_derived": "{title} cannot be derived from this row's numbers: {reason}",
    "drawn": "the module draws its structure: {column} is {first} under one seed and {second} under another",
    "params_differ": "the declared closed form gives {declared} params, the module has {counted}",
    "params_made": "the first pass makes or drops parameters: {before:,} before it, {after:,} (counted) after it",
    "complex_params": "{count:,} of the parameters are complex numbers, which count once and hold two real ones",
    "launch_bound": (
        "launch-bound: the host takes as long to enqueue a pass as the device to run it, so latency_{mode}_ms is the "
        'time of the host; execution = "graph" measures the inference of the device alone'
    ),
    "no_network_function": "of a module alone; a network is not examined",
    "nothing_to_train": "training was not measured: the module has no weight to train",
    "input_trained": "the module has no weight to train: its training step computes the gradient of its input",
    "inference_only": "training was not measured: the output depends on nothing that has a gradient",
    "no_training": "no training with execution '{execution}': {reason}",
    "left_running": "the module left processes running, which were ended: {commands}",
    "failed_beside": "measured alone in a process, because it failed in a process with other rows: {reason}",
    "wrote_into_pipe": "the module wrote into the pipe of the measurement, which was ignored: {content}",
    "replaces": "the module monkey-patches {names}",
    "changes_settings": "the module changes global settings of its process: {settings}",
    "changes_input": "the module changes its input in place, so every pass computes on the result of the previous one",
    "changes_dtype": "the output has another dtype than the input: {dtypes}",
    "misread_gradient": (
        "Gradients of this block are wrong here: on a CPU, batch norm and instance norm of torch {torch} read a "
        "transposed one in a wrong order; {way_out}."
    ),
    "forks": "the module forks its process: a copy of it may have run during the passes",
    "no_gpu_room": "the GPU was out of memory, or another process used it exclusively",
    "gpu_shared": "{processes} other process(es) compute on the GPU",
    "malloc_as_it_is": (
        "This system does not let a process keep the memory that it frees, so CPU times differ more between processes."
    ),
    "disturbed": (
        "Background load above {limit:.0%} of the cores during timing: ratios are not shown, and rows are ordered only "
        "where times differ clearly."
    ),
    "busy_machine": "the machine was not idle: {cores:.1f} cores in use by other processes",
    "slow_clock": "the GPU ran at {mhz} of {limit_mhz} MHz ({share:.0%}) under load: {reasons}",
    "kept_by_content": (
        "latency_{mode}_ms does not measure the module's work: a pass on a new input takes "
        "more than {multiple:g} times one on the same input again; the module keeps outputs by content."
    ),
    "impossible_time": (
        "latency_{mode}_ms is impossible: {card} needs {least_ms:.3g} ms or more to write the {mib:.3g} MiB of "
        "the output, and a pass takes less; they were not written in every pass."
    ),
    "rate_above": (
        "More than the large matrix product that it is compared with: the product of this dtype is slow on this "
        "device, or the module computes in another dtype."
    ),
}


@cache
def texts() -> dict[str, tuple[str, str]]:
    """The words of each code, here and of plugins, and those for several rows at once, whose values differ."""
    found: dict[str, str | tuple[str, str]] = {**TEXTS, **dict(note for _, note in brought("notes"))}
    return {code: each if isinstance(each, tuple) else (each, each) for code, each in found.items()}


@dataclass(frozen=True, slots=True)
class Note:
    """Qualification of a row or, if `about` is the key of a quantity, of that number."""

    code: str
    values: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""

    def __str__(self) -> str:
        return self._worded(shared=False)

    @property
    def shared(self) -> str:
        """The words without the values of one row, where there are such."""
        return self._worded(shared=True)

    def _worded(self, shared: bool) -> str:
        """A code that is not known here, or that has other values here, is told with its values as they are."""
        values = {
            name: ", ".join(map(str, each)) if isinstance(each, list | tuple) else each
            for name, each in self.values.items()
        }
        try:
            return texts()[self.code][shared].format(**values)
        except (KeyError, ValueError):
            return ": ".join(
                [self.code, *[", ".join(f"{name} {each}" for name, each in values.items())] * bool(values)]
            )


def short(note: Note) -> str:
    """A few words for beside a row's name; empty for a note that is no such."""
    return SHORT.get(note.code, "").format(**note.values)


def joined(notes: Iterable[Note]) -> str:
    """Notes as one text, in which a reason that several of them have stands once."""
    heads: dict[str, list[str]] = {}
    for note in notes:
        reason = str(note.values.get("reason") or note)
        heads.setdefault(reason, []).append(str(note).removesuffix(reason).removesuffix(": "))
    return "; ".join(
        ": ".join(filter(None, [", ".join(dict.fromkeys(filter(None, own))), reason])) for reason, own in heads.items()
    )


def dumped(notes: Iterable[Note]) -> str:
    """Notes as a cell of a record."""
    return json.dumps([{"code": each.code, "about": each.about, "values": each.values} for each in notes])


def parsed(text: str, where: str) -> list[Note]:
    """The notes of a cell. UsageError for a text that holds anything else."""
    try:
        return [Note(str(each["code"]), dict(each["values"]), str(each["about"])) for each in json.loads(text or "[]")]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{where}: notes is {text!r}; it must be a list of notes in JSON") from None
