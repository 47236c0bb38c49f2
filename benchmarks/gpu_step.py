"""Shared parts of the steps of gpu.py: a step, the cases of steps that go through all blocks, their tables."""

import csv
import gzip
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ctxbench.base.mode import MODES, Mode
from ctxbench.model.failures import describe_failure

if TYPE_CHECKING:
    import pandas as pd
    import torch

DEVICE = "cuda"
LARGE, MEDIUM, SMALL = (1, 512, 128, 128), (1, 128, 64, 64), (1, 128, 32, 32)
DTYPES = ("float32", "bfloat16", "float16")
CELLS = ("module", "mode", "dtype", "shape")
# The last cell of a row of a table; of a case that failed, why.
REFUSED = "refused"
Shape = tuple[int, int, int, int]
Measured = TypeVar("Measured", bound="Item")


class CannotRun(Exception):
    """The step does not apply to this machine, or could not be judged; the text says why."""


@dataclass(frozen=True)
class Verdict:
    """Result of a step: what it saw, and whether that was expected; `left` says what of it is still to be measured."""

    good: bool
    seen: str
    left: str = ""


@dataclass(frozen=True)
class Step:
    """A step: `measure(out, deadline)` writes files, from which alone `judge(out)` decides.

    `seconds` is what it takes, and `because` how that is known. Called again, `measure` goes on with what is left;
    `in_parts` is false where a part that was stopped is lost.
    """

    name: str
    title: str
    expectation: str
    seconds: float
    because: str
    measure: Callable[[Path, float], None]
    judge: Callable[[Path], Verdict]
    in_parts: bool = True


@dataclass(frozen=True)
class Case:
    """One block in one mode, on an image of this shape and dtype."""

    module: str
    mode: Mode
    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.module} {self.mode} {self.dtype} {list(self.shape)}"

    def cells(self) -> tuple[str, ...]:
        """The values of `CELLS`."""
        return self.module, self.mode, self.dtype, "x".join(map(str, self.shape))

    def built(self, device: str) -> "tuple[torch.nn.Module, torch.Tensor]":
        """The block and its image on a device."""
        import torch

        from ctxbench import registry

        kind = getattr(torch, self.dtype)
        with torch.device(device):
            module = registry.get(self.module).build(self.shape[1]).to(kind)
            return module, torch.randn(self.shape, dtype=kind)


def cases(shapes: Sequence[Shape], dtypes: Sequence[str]) -> list[Case]:
    """Every block of the registry in both modes."""
    from ctxbench import registry

    return [
        Case(key, mode, dtype, shape)
        for shape in shapes
        for dtype in dtypes
        for key in registry.names()
        for mode in MODES
    ]


def folders(out: Path) -> list[Path]:
    """Everything that a run with this folder writes: itself, and beside it Table 3 under both protocols."""
    name = out.name.removeprefix("gpu-")
    return [out, *(out.with_name(f"{table}-{name}") for table in ("table3", "table3-paper"))]


def measured(folder: Path, **options: Any) -> None:
    """Run a suite through the engine, or go on with its run if the folder has one.

    The step's process is ended when its time is up; a run that was ended can be continued.
    """
    import ctxbench
    from ctxbench.engine.progress import Plain
    from ctxbench.engine.run import resume
    from ctxbench.results.run_folder import RunFolder

    if not (folder / "run.json").exists():
        ctxbench.run(**{"device": DEVICE, **options}, out=folder, reporter=Plain())
    elif RunFolder.open(folder).meta["state"] != "finished":
        resume(folder, reporter=Plain())


def failures(frame: "pd.DataFrame") -> list[str]:
    """The rows that are not `ok`, and why."""
    bad = frame[frame["status"] != "ok"]
    return [f"{row['case']}: {row['status']}, {row['message']}" for _, row in bad.iterrows()]


def told(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


class Item(Protocol):
    """Something that is measured on its own; `cells` are its first cells in a table."""

    def cells(self) -> tuple[str, ...]: ...


def go_through(
    items: Sequence[Measured],
    path: Path,
    keys: Sequence[str],
    columns: Sequence[str],
    rows_of: Callable[[Measured], Iterable[Sequence[object]]],
    deadline: float,
) -> None:
    """Write the rows of each item to a table as it ends, until the time is up; of one that fails, why.

    Raises an error after which the process can use the GPU no more.

    A row is the item's cells, under `keys`, then those of `columns`, then REFUSED. Items of the table are left out.
    """
    done = {tuple(row[key] for key in keys) for row in read(path)}
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow([*keys, *columns, REFUSED])
        for item in items:
            if time.monotonic() > deadline:
                return
            if item.cells() in done:
                continue
            try:
                rows = [[*item.cells(), *row, ""] for row in rows_of(item)]
            except Exception as error:
                writer.writerow([*item.cells(), *[""] * len(columns), told(error)])
                if describe_failure(error).status == "crashed":
                    raise  # this process computes nothing more on the GPU; the next one goes on
                continue
            writer.writerows(rows)
            file.flush()


def read(path: Path) -> list[dict[str, str]]:
    """The whole rows of a table, compressed or not; none without a table. A last line that was cut is taken away."""
    if not path.exists():
        packed = path.with_name(f"{path.name}.gz")
        return list(csv.DictReader(gzip.open(packed, "rt", encoding="utf-8"))) if packed.exists() else []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return list(csv.DictReader(whole.splitlines()))
