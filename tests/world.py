"""The folder in which generated commands run, and the values of their options: good, nearly good and hostile."""

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any, get_args, get_type_hints

from ctxbench import cli

SUITE = """
title = "tiny"
modules = ["linear"]
metrics = ["params"]
[axes]
shape = [1, 8, 6, 5]
[measure]
processes = 1
sample_s = 0.01
warmup_s = 0
"""
MODULE = """
from torch import nn

class Mine(nn.Module):
    def __init__(self, channels, gain: float = 1.0):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(x)
"""
PUBLISHED = """
title = "A paper"
authors = "A. Uthor"
venue = "ICLR"
year = 2021
seen = "read"
shape = [1, 8, 6, 5]
[rows.linear]
printed = { params = "0.1" }
"""
# Named in each command that has them: the default is what a paper has, or all modules.
ALWAYS = ("suite", "shape", "modules", "rank_by")
# What an option of this name takes. One that is not here is drawn by its type, so that a new option is tried, too.
GOOD: dict[str, list[str]] = {
    "suite": ["tiny.toml"],
    "modules": ["linear", "se,linear", "mine.py:Mine"],
    "module": ["linear", "se", "mine.py:Mine"],
    "candidates": ["mine.py:Mine", "linear"],
    "shape": ["1,8,6,5", "2,16,4,4"],
    "dtype": ["float32", "float64", "bfloat16"],
    "memory_format": ["contiguous", "channels_last"],
    "device": ["cpu", "t4", "auto"],
    "also_on": ["t4"],
    "target": ["t4", "cpu", "cuda"],
    "execution": ["eager"],
    "threads": ["1", "1,2"],
    "metrics": ["params", "macs,memory"],
    "chosen": ["reduction=2", "linear.reduction=2", "gain=2.0"],
    "budget": ["1s"],
    "counter": ["ctxbench", "torchprofile"],
    "mode": ["train", "infer"],
    "memory": ["2GiB", "1 B"],
    "rank_by": ["params", "macs"],
    "reuse": ["run"],
    "runs": ["run"],
    "span": ["HEAD"],
    "first": ["run"],
    "second": ["run"],
    "folder": ["run"],
    "baseline": ["run", "run/records.csv"],
    "against": ["HEAD"],
    "inject": ["10%"],
    "accept": ["params"],
    "renamed": ["A=B"],
    "margin": ["5%"],
    "figures": ["cost", "samples"],
    "formats": ["png"],
    "columns": ["params,macs"],
    "notes": ["none", "below"],
    "published": ["published.toml"],
    "table": ["published.toml", "external_attention"],
    "block": ["linear=mine.py:Mine", "linear=se"],
    "crossover": ["linear:se"],
    "class_name": ["Mine"],
    "path": ["new.py"],
    "plot": ["new.svg"],
    "address": ["127.0.0.1:1"],
}
BY_TYPE: dict[Any, list[str]] = {
    int: ["1", "2", "8"],
    float: ["0.01", "1", "2.5"],
    Path: ["new", "new.toml", "below/new.json"],
    str: ["new"],
}
NUMBERS = (
    "", "0", "-1", "-0.0", "nan", "inf", "-inf", "1e999", "1e-999", "1_0", "\uff11", "٣", "0x1", "1;1", "true", " ",
    "1e", "9" * 20, "9" * 400, str(2**63), "1025",
)  # fmt: skip
# Only below the working folder, since a command may write there.
PATHS = (
    "", ".", "folder", "pipe", "circle", "null", "file.txt", "file.txt/x", "folder/x", "missing/x/y.toml", "tiny.toml",
    "deep.toml", "deep.json", "latin.toml", "run", "run/run.json", "run/records.csv", "a" * 300, "é.toml",
    "\udc80.toml", "new\n.py", "-", "--", "x.py", "x.png", "x.svg", "x.toml", "mine.py", "class.py", "~", "*",
)  # fmt: skip
TEXTS = (
    *NUMBERS, *PATHS, ",", ",,", ":", "=", "a=b=c", "a" * 5000, "\x1b[2J", "\u202e", "..", "/", "/dev/null",
    "/dev/zero", "pipe:M", "folder:M", "circle.py:M", "exits.py:M", "leaves.py:M", "raises.py:M", "mine.py:",
    "mine.py:Missing", ":Mine", "mine.py:Mine:Mine", "sys:exit", "nothing.at.all:M", "linear,linear", "linaer",
    "None", "[]", "{}", "{0}", "%s", "1,8,6", "0,8,6,5", "1,8,6,5,", "1,8,6,5.0", "-1,8,6,5", "\uff11,8,6,5",
    "1,3,8,8", "1,8,99999999999999999999,5", "1,8,1048576,1048576", "steps=0", "linear.x=1", "reduction=",
    "reduction=0", "reduction=nan", "reduction=" + "9" * 30, "100%", "1e9%", "0s", "5 years", "2", "-2GiB",
    "999999999999GiB", "meta", "cuda", "cuda:99", "t4,t4", "cpu,t4",
)  # fmt: skip


def make(folder: Path, run: Path) -> None:
    """Write the folder: a suite, modules, a run, and what is no file that can be read."""
    (folder / "tiny.toml").write_text(SUITE)
    (folder / "published.toml").write_text(PUBLISHED)
    (folder / "mine.py").write_text(MODULE)
    (folder / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "leaves.py").write_text("import sys\nclass M:\n    pass\nraise KeyboardInterrupt\n")
    (folder / "raises.py").write_text("class Odd(BaseException):\n    def __str__(self): raise self\nraise Odd\n")
    (folder / "file.txt").write_text("text\n")
    (folder / "deep.toml").write_text("a = " + "[" * 5000)
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "latin.toml").write_bytes(b"a = '\xe9'\n")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "circle").symlink_to("circle")
    (folder / "circle.py").symlink_to("circle.py")
    (folder / "null").symlink_to("/dev/null")
    shutil.copytree(run, folder / "run")


def command_line(chance: Random) -> list[str]:
    """A command, and some of the options that it declares; most lines have few bad values or none."""
    name = chance.choice(sorted(cli.known_commands()))
    command = cli.imported(name)
    types = get_type_hints(command.callback)
    bad = chance.choice([0.0, 0.1, 0.3, 1.0])
    words = [name]
    for each in command.params:
        is_given = each.name in ALWAYS or chance.random() < (0.95 if each.required else 0.2)
        if each.name == "help" or not is_given:
            continue
        option = [chance.choice(each.opts)] if each.param_type_name == "option" else []
        if getattr(each, "is_flag", False):
            words += option
            continue
        for _ in range(chance.randint(1, 2) if each.multiple or each.nargs == -1 else 1):
            words += option + [value(each.name, types[each.name], bad, chance) for _ in range(max(each.nargs, 1))]
    return words


def value(name: str, annotation: Any, bad: float, chance: Random) -> str:
    """A value of an option of this name and type, which is a bad one with this probability."""
    kind = next(each for each in BY_TYPE if each in _inside(annotation))
    good = chance.choice(BY_TYPE[kind] if kind in (int, float) else GOOD.get(name, BY_TYPE[kind]))
    if chance.random() >= bad:
        return good
    hostile: str = chance.choice(PATHS if kind is Path else TEXTS if kind is str else NUMBERS)
    # A path that is written stays below the working folder, so none is made up.
    return hostile if kind is Path else chance.choice([hostile, hostile, nearly(good, chance), text(chance)])


def _inside(annotation: Any) -> set[Any]:
    """The types that an annotation such as `list[str] | None` names."""
    return {annotation}.union(*map(_inside, get_args(annotation)))


def nearly(good: str, chance: Random) -> str:
    """The text with one character more, less or another. No digit is added: a limit would be another one."""
    at = chance.randrange(len(good))
    put: str = chance.choice(["", *ODD])
    return good[:at] + put + good[at + chance.randint(0, 1) :]


def text(chance: Random) -> str:
    return "".join(chance.choices(ODD + "abc019", k=chance.randint(1, 12)))


ODD = "*.,:-= x%[]{}'\"#\\\té\u200b\u2028\udc80\x1b\x7f"
