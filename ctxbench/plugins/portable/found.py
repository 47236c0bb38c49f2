"""Finding of a target on a module: kept in a record as JSON, told to people in words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ctxbench.model.metric import RecordRow

# The targets that are runtimes of servers and of phones, by their names.
SERVERS, PHONES = ("onnx", "openvino"), ("executorch", "coreml", "litert")
TargetStatus = Literal["whole", "parts", "rule", "refused", "wrong", "failed", "absent"]


@dataclass(frozen=True)
class Found:
    """Finding of a target on a module.

    `wrong` is one that gives another output than PyTorch, `failed` one that crashed or hung, `absent` one whose
    packages are not there, or that was not asked for; `rule` is one that was not tried. `outside` are the operators
    that its accelerator does not take, or a rule refuses, with their lines, in `parts` parts in all; `mend` says what
    to write instead of the one that is blamed. `one_size` says why the conversion is not for any height and width; ""
    where it is, or where that was not tried. `error` is relative to PyTorch's output; None where it was not run, or
    where the module draws random numbers. `versions` are those of the packages.
    """

    status: TargetStatus
    reason: str = ""
    outside: Sequence[str] = ()
    parts: int = 1
    mend: str = ""
    one_size: str = ""
    error: float | None = None
    ran: bool = True
    versions: str = ""

    @property
    def converted(self) -> bool:
        """Return whether the target takes the module, whole or in parts, or rules say what it takes."""
        return self.status in ("whole", "parts", "rule")

    @property
    def short(self) -> str:
        """The status in a word or two: `4 parts`, `one size`, `not run`."""
        if self.status == "rule":
            return "refused by rule" if self.outside else "no rule refuses it"
        words = [f"{self.parts} parts" if self.parts > 1 else "all outside"] * (self.status == "parts")
        words += ["one size"] * bool(self.one_size) + ["not run"] * (not self.ran)
        return ", ".join(words if self.converted else [self.status]) or "whole"

    @property
    def sentence(self) -> str:
        """All that keeps the module from being whole, for any size, as a clause; "" where nothing does."""
        outside = ", ".join(dict.fromkeys(self.outside))
        reason = self.reason.removesuffix(".") if self.mend else self.reason
        clauses = [] if self.converted else [f"{self.status}: {reason}"]
        clauses += [f"{self.short}{':' if self.status == 'rule' else ', outside:'} {outside}"] * bool(outside)
        clauses += [f"one size only: {self.one_size}"] * bool(self.one_size)
        return "; ".join([*clauses, *[f"instead: {self.mend}"] * bool(self.mend)])

    @property
    def plain(self) -> dict[str, Any]:
        """All that differs from the defaults, as JSON has it."""
        return {name: value for name, value in asdict(self).items() if value != getattr(Found, name, None)}

    @classmethod
    def of_plain(cls, values: Mapping[str, Any]) -> "Found":
        """The same from its JSON."""
        return cls(**values)


def found_of(row: RecordRow) -> dict[str, Found]:
    """Findings of a record by target; empty if that was not asked for."""
    return {name: Found.of_plain(each) for name, each in json.loads(row["portable_found"] or "{}").items()}
