"""Classes of public code by name, from clones below $PAPERS and from installed packages, for public_equality.py."""

import __future__

import ast
import itertools
import math
import os
import re
import subprocess
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Named = dict[str, Tensor]
GIVEN = vars(typing) | {
    "torch": torch, "nn": nn, "F": functional, "math": math, "itertools": itertools, "np": np, "Tensor": Tensor,
}  # fmt: skip


def classes(path: str, *names: str, wide: bool = True, **given: Any) -> SimpleNamespace:
    """Functions and classes of a file, without what the file imports; `wide` makes float64 of float32 in them."""
    top, _, rest = path.partition("/")
    text = (_clone(top) or _package(top)).joinpath(rest).read_text(encoding="utf-8")
    if wide:
        text = re.sub(r"torch\.float(32)?\b", "torch.float64", text).replace(".float()", ".double()")
    tree = ast.parse(text)
    tree.body = [part for part in tree.body if getattr(part, "name", None) in names]
    made = GIVEN | given
    later = __future__.annotations.compiler_flag  # names of annotations need not be there
    exec(compile(tree, path, "exec", later), made)  # public code, which is what is compared
    return SimpleNamespace(**{name: made[name] for name in names})


def version_of(top: str) -> str:
    """The commit of a clone below $PAPERS, in twelve digits, or a package and its version."""
    clone = _clone(top)
    if clone is None:
        name = packages_distributions()[top][0]
        return f"{name} {version(name)}"
    command = ["git", "-C", str(clone), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _clone(top: str) -> Path | None:
    clone = Path(os.environ.get("PAPERS", "")) / top
    return clone if (clone / ".git").exists() else None


def _package(top: str) -> Path:
    found = find_spec(top)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{top} is neither a clone below $PAPERS nor an installed package.")
    return Path(found.submodule_search_locations[0])


@dataclass(frozen=True)
class Form:
    """A block and the class that it is compared with: where that is, how it is made, called, and gets our weights."""

    block: str
    file: str  # its first folder is a repository or a package
    name: str
    make: Callable[[], Any]
    channels: int
    sizes: tuple[tuple[int, int], ...]
    call: Callable[[Any, Tensor], Tensor] = lambda inner, x: inner(x)  # of a map, to one
    names: Callable[[Named], Named] = lambda ours: ours
    settings: Mapping[str, Any] = field(default_factory=dict)
    trains_one: bool = True  # False: its norms of one value a channel end a training step with one image


def moved(**places: str) -> Callable[[Named], Named]:
    """Our names as theirs: of each, the part up to `__` or the end is replaced, `__` standing for a point."""
    own = {name.replace("__", "."): place for name, place in places.items()}

    def theirs(name: str) -> str:
        found = max((each for each in own if f"{name}.".startswith(f"{each}.")), key=len, default="")
        return own[found] + name.removeprefix(found) if found else name

    return lambda ours: {theirs(name): each for name, each in ours.items()}
