"""What qualifies a record's numbers, as data: a code and values; and the one place for the words of each code."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ctxbench.errors import UsageError

# The codes of notes after which no verdict rests on a row's times, or on the row.
DISTURBED, BROKEN = "disturbed", "broken_contract"
TEXTS = {
    "remark": "{text}",
    "reused": "reused from {path}",
    "params_differ": "the declared closed form gives {declared} params, the module has {counted}",
    "macs_differ": "MAC counters disagree: counted {counted}, closed form {declared}",
    "macs_differ_uncounted": (
        "MAC counters disagree: counted {counted}, closed form {declared} (not counted: {operators})"
    ),
    "no_macs": "{reason}",
    "no_macs_train": "no MACs of a training step: {reason}",
    "no_memory": "no memory prediction: {reason}",
    "no_memory_autocast": "no memory prediction under autocast",
    "no_peak_autocast": "the peak is not measured under autocast",
    "autocast_cuda": "Under autocast the casts are those of PyTorch's lists for CUDA; no GPU has confirmed them.",
    "no_memory_mode": "no memory prediction ({mode}): {reason}",
    "memory_changed": (
        "predicted {mode} memory under the installed PyTorch: {now:.0f} MiB, under that of 2020 {then:.0f} MiB "
        "(see docs/memory.md)"
    ),
    "memory_workspace": (
        "Up to {mib:.0f} MiB if cuDNN takes a workspace for wide 3x3 convolutions (Winograd's algorithm in steps)."
    ),
    "memory_unchecked": "{reason}",
    "lower_bound": "A lower bound: what these operators hold inside their kernels is not known: {operators}.",
    "recall_stored": "Recall is read from {run} (torch {torch}), where the same code was trained by the same recipe.",
    "recall_unsteady": "Two trainings with one seed differ: the module draws random numbers of its own.",
    "recall_peeks": "It gets the labels of other scenes right on {task}: it reads them instead of the scene.",
    "recall_diverged": "the training on {task} diverged: {reason}",
    "no_time": "no predicted time: {reason}",
    "no_time_mode": "no predicted time ({mode}): {reason}",
    "time_launches": (
        "Launch-bound: the host takes about {host_ms:.3g} ms ({us:.3g} us an operator, {origin}) to launch kernels "
        "that take {device_ms:.3g} ms; a faster host, a CUDA graph or torch.compile changes this time."
    ),
    "time_era": "With the PyTorch {other}: {ms:.3g} ms.",
    "time_assumed": "{share:.0%} of the time is in classes without measurements: {classes}.",
    "time_unknown": "Of no known class, their bytes alone are counted: {operators}.",
    "time_dtype": "No efficiencies of some classes were measured in {dtype}: those of another dtype stand in.",
    "time_layout": "The efficiencies were measured on contiguous tensors, not on {memory_format}.",
    "launch_bound": (
        "launch-bound: the host takes as long to enqueue a pass as the device to run it, so latency_{mode}_ms is the "
        'time of the host; execution = "graph" measures the inference of the device alone'
    ),
    "no_energy": "{reason}",
    "no_network_function": "of a module alone; a network is not examined",
    "no_slot_input": "of the module alone: it takes several maps of the network, past its slot",
    "nothing_to_train": "no training step: the module has no weight to train",
    "no_training": "no training with execution '{execution}': {reason}",
    "left_running": "the module left processes running, which were ended: {commands}",
    "wrote_into_pipe": "the module wrote into the pipe of the measurement, which was ignored: {content}",
    "replaces": "the module replaces {names}, which everything in its process then uses",
    "changes_settings": "the module sets what all in its process then uses: {settings}",
    "changes_input": "the module changes its input in place, so that each pass computes on what the one before left",
    "changes_dtype": "the output has another dtype than the input: {dtypes}",
    "forks": "the module forks its process: a copy of it may have run beside the passes",
    "no_gpu_room": "the GPU had no memory left, or another process had it to itself",
    "gpu_shared": "{processes} other process(es) compute on the GPU",
    "malloc_as_it_is": (
        "This system does not let a process keep the memory that it frees, so CPU times differ more between processes."
    ),
    "disturbed": "Other work kept more than {limit:.0%} of the cores busy meanwhile: no factor rests on it.",
    "broken_contract": "The module does not meet the contract of context modules: see `ctxbench verify`.",
    "busy_machine": "the machine was not at rest: others kept {cores:.1f} cores busy",
    "slow_clock": "the GPU ran at {mhz} of {limit_mhz} MHz ({share:.0%}) under load: {reasons}",
    "rate_above": (
        "More than the large matrix product that it is compared with: the product of this dtype is slow on this "
        "device, or the module computes in another dtype."
    ),
}
# What a table says of several rows at once, whose values differ.
SHARED = {
    "time_launches": (
        "Launch-bound: the host's time to launch the kernels ({us:.3g} us an operator, {origin}) is longer than "
        "theirs; a CUDA graph or torch.compile changes this time."
    ),
    "time_assumed": "A part of the time is in classes without measurements: {classes}.",
}


@dataclass(frozen=True, slots=True)
class Note:
    """What a reader must know of a row or, if `about` is the key of a quantity, of that number."""

    code: str
    values: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""

    def __str__(self) -> str:
        return self._worded(TEXTS)

    @property
    def shared(self) -> str:
        """The words without the values of one row, where there are such."""
        return self._worded({**TEXTS, **SHARED})

    def _worded(self, texts: Mapping[str, str]) -> str:
        """A code that is not known here, or that has other values here, is told with its values as they are."""
        values = {
            name: ", ".join(map(str, each)) if isinstance(each, list | tuple) else each
            for name, each in self.values.items()
        }
        try:
            return texts[self.code].format(**values)
        except (KeyError, ValueError):
            return ": ".join(
                [self.code, *[", ".join(f"{name} {each}" for name, each in values.items())] * bool(values)]
            )


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
