"""Instructions of a pass, by callgrind: what a tool such as CodSpeed compares, whatever else the machine does.

It needs valgrind with its headers, and a C compiler. valgrind hides AVX-512, so that kernels for AVX2 are counted.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MARKS = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void zero(void) { CALLGRIND_ZERO_STATS; }
void dump(void) { CALLGRIND_DUMP_STATS; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
# Packages are entered without their __init__ where that will do, since it imports what a block does not need.
COUNT = """
import ctypes, importlib, json, os, sys, types
import torch

marks = ctypes.CDLL(sys.argv[1])
torch.set_num_threads(1)

def passes(tree, block, shape, hparams):
    path, name = block.split(":")
    parts = path.removesuffix(".py").split("/")
    packages = {".".join(parts[:count]): os.path.join(tree, *parts[:count]) for count in range(1, len(parts))}
    for package, place in packages.items():
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [place]
    try:
        found = getattr(importlib.import_module(".".join(parts)), name)
    except ImportError:
        for package in packages:
            del sys.modules[package]
        found = getattr(importlib.import_module(".".join(parts)), name)
    torch.manual_seed(0)
    module, x = found(shape[1], **hparams), torch.randn(*shape)
    try:
        module.eval()(x)
    except Exception:
        x = x.flatten(2).transpose(1, 2)
        module(x)

    def infer():
        with torch.inference_mode():
            module.eval()(x)

    def train():
        module.zero_grad()
        module.train()(x).sum().backward()

    return infer, train

for side in json.loads(sys.argv[2]):
    known = {*sys.modules}
    sys.path.insert(0, side["tree"])
    try:
        for each in passes(**side):
            marks.start()
            each()
            each()
            marks.zero()
            each()
            marks.dump()
            marks.stop()
        print(json.dumps(""), flush=True)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
    sys.path.remove(side["tree"])
    for name in {*sys.modules} - known:
        if (getattr(sys.modules[name], "__file__", None) or side["tree"]).startswith(side["tree"]):
            del sys.modules[name]
"""


@dataclass(frozen=True)
class Side:
    """A block, `path.py:Class` of a tree, of as many channels as `shape` has."""

    tree: str
    block: str
    shape: Sequence[int]
    hparams: Mapping[str, Any] = field(default_factory=dict)


def instructions(sides: Sequence[Side], folder: Path, python: str = sys.executable) -> list[tuple[int, int] | str]:
    """The instructions of each side's inference and training step, one thread; or why there are none."""
    (folder / "marks.c").write_text(MARKS, encoding="utf-8")
    library = folder / "marks.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "marks.c")], check=True)
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'counts'}"]
    asked = [python, "-c", COUNT, str(library), json.dumps([asdict(side) for side in sides])]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    ended = subprocess.run([*tool, *asked], env=environ, text=True, capture_output=True, check=False)
    errors = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('"')]
    if len(errors) < len(sides):
        raise SystemExit(f"callgrind ended early: {ended.stderr[-2000:]}")
    dumps = iter(sorted(folder.glob("counts.*"), key=lambda path: int(path.suffix[1:])))
    return [error or (_total(next(dumps)), _total(next(dumps))) for error in errors]


def _total(dump: Path) -> int:
    return int(re.findall(r"^totals: (\d+)$", dump.read_text(encoding="utf-8"), re.MULTILINE)[0])
