"""Modules that raise or end their process where they are imported, built or run: each command says so in a sentence."""

import random
from pathlib import Path

from .tally import Tally, run

TRIALS, TRIALS_SHORT = 105, 7
ENDS = (
    "sys.exit()", "sys.exit(0)", "sys.exit('no GPU here')", "os._exit(0)", "os._exit(7)", "os.abort()",
    "os.kill(os.getpid(), 9)", "raise KeyboardInterrupt", "raise GeneratorExit", "raise StopIteration",
    "raise BaseException('odd')", "raise Unprintable", "raise ValueError('x' * 100_000)", "return_to_nowhere()",
)  # fmt: skip
# Where the module does it: in its file, in its constructor or in its forward pass.
PLACES = ("{end}", "        {end}", "        {end}")
SOURCE = """
import os, sys
from torch import nn

class Unprintable(BaseException):
    def __str__(self):
        raise self

{0}

class Ends(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
{1}

    def forward(self, x):
        y = self.conv(x)
{2}
        return y
"""
SHAPE = ("--shape", "1,8,6,5")
COMMANDS: dict[str, tuple[str, ...]] = {
    "show": ("show", "{}", *SHAPE),
    "memory": ("memory", "{}", *SHAPE),
    "predict": ("predict", "{}", "--for", "t4", *SHAPE),
    "choose": ("choose", "--memory", "2GiB", "--device", "t4", "--modules", "linear,{}", *SHAPE),
    "run": ("run", "--suite", "quick", "--static", "--out", "{out}", "--modules", "linear,{}", *SHAPE),
    "verify": ("verify", "{}", "--channels", "8", "--size", "6", "5"),
    "compare": (
        "compare", "{}", "--modules", "linear", "--metrics", "params", "--rank-by", "params", "--out", "{out}", *SHAPE,
    ),
}  # fmt: skip
# A ranking goes on without a module that cannot be predicted, and says why.
GOES_ON = ("choose",)


def attack(folder: Path, short: bool, seed: int) -> Tally:
    """Each command in turn, with a module that ends in some way at some place."""
    tally = Tally()
    chance = random.Random(seed)
    for number in range(TRIALS_SHORT if short else TRIALS):
        command = list(COMMANDS)[number % len(COMMANDS)]
        end, place = chance.choice(ENDS), chance.randrange(len(PLACES))
        file = folder / f"ends{number}.py"
        file.write_text(SOURCE.format(*(PLACES[i].format(end=end) if i == place else "" for i in range(len(PLACES)))))
        what = f"{command} of a module with `{end}` in its {('file', 'constructor', 'forward pass')[place]}"
        arguments = [each.format(f"{file}:Ends", out=folder / f"run{number}") for each in COMMANDS[command]]
        tally.tried += 1
        code = run(arguments, tally, what, folder)
        said = (folder / "output").read_text(errors="replace")
        if code not in ((0, 1, 2) if command in GOES_ON else (1, 2)) or ("Ends" not in said and file.name not in said):
            tally.wrong.append(f"{what}: exit code {code}: {said.strip()[-300:] or 'nothing printed'}")
    return tally
