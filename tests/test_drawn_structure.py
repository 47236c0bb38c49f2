"""A block that draws its structure is counted under a fixed seed, and told where another one gives another count."""

from pathlib import Path

import pytest

import ctxbench
from ctxbench.base.notes import Note

LAYERS = """
import {source}
from torch import nn
import torch
class Drop(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(8))
    def forward(self, x):
        for layer in self.layers:
            if self.training and {draw} < 0.5:
                continue
            x = x + layer(x)
        return x
class Whole(Drop):
    def forward(self, x):
        return self.layers[0](x)
"""
DRAWS = {"random": "random.random()", "torch": "torch.rand((), device='cpu').item()", "numpy": "numpy.random.rand()"}
SHAPE = [(1, 4, 6, 6)]
LAYER = 4 * 4 * 9 * 36


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
@pytest.mark.parametrize("source", DRAWS)
def test_a_drawn_count_is_the_same_each_time_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drop.py").write_text(LAYERS.format(source=source, draw=DRAWS[source]))
    rows = [
        ctxbench.run(
            modules=["drop.py:Drop", "drop.py:Whole"],
            shape=SHAPE,
            metrics=["params", "macs", "memory"],
            static=True,
            out=out,
        ).folder.rows()
        for out in ("first", "second")
    ]
    (first, whole), (second, _) = rows
    assert first["status"] == second["status"] == "ok"
    assert first["macs"] == 8 * LAYER
    drawn = {note.values["column"]: note for note in first["notes"] if note.code == "drawn"}
    assert drawn
    assert {**first, "notes": 0, "elapsed_s": 0} == {**second, "notes": 0, "elapsed_s": 0}
    for column, note in drawn.items():
        assert "train" in column
        assert first[column] == second[column] == note.values["first"] != note.values["second"]
    assert not [note for note in whole["notes"] if note.code == "drawn"]


UNSEEDED = """
import os, random, secrets
import numpy, torch
from torch import nn
made = {made}
class Drawn{number}(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 1)
        self.made = {held}
    def forward(self, x):
        if self.training:
            x = x + self.layer(x.new_zeros(1, 4, 1, 1 + {draw})).mean()
        return x + self.layer(x)
"""
GENERATORS = {
    "os.urandom": ("None", "None", "int.from_bytes(os.urandom(2))"),
    "secrets": ("None", "None", "secrets.randbelow(60000)"),
    "SystemRandom": ("random.SystemRandom()", "None", "made.randrange(60000)"),
    "default_rng": ("None", "None", "int(numpy.random.default_rng().integers(60000))"),
    "torch, of the file": ("torch.Generator()", "None", "int(torch.randint(60000, (), generator=made, device='cpu'))"),
    "Random, of the block": ("None", "random.Random()", "self.made.randrange(60000)"),
    "numpy, of the file": ("numpy.random.RandomState(1)", "None", "int(made.randint(60000))"),
}


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_what_no_seed_reaches_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (made, held, draw) in enumerate(GENERATORS.values()):
        Path(f"drawn_{number}.py").write_text(UNSEEDED.format(number=number, made=made, held=held, draw=draw))
    modules = [f"drawn_{number}.py:Drawn{number}" for number in range(len(GENERATORS))]
    found = ctxbench.run(modules=modules, shape=SHAPE, metrics=["macs"], static=True, out="out").folder.rows()
    told = [{note.values["column"] for note in row["notes"] if note.code == "drawn"} for row in found]
    assert dict(zip(GENERATORS, told, strict=True)) == {name: {"macs_train"} for name in GENERATORS}


@pytest.mark.plugin("check")
def test_no_gate_compares_what_is_drawn() -> None:
    from ctxbench.plugins.check.baseline import exact_of
    from ctxbench.plugins.check.result import EXACT_COLUMNS

    row = dict.fromkeys((name for group in EXACT_COLUMNS.values() for name in group), 1)
    note = Note("drawn", {"column": "macs_train", "first": 1, "second": 2})
    assert exact_of({**row, "notes": []}) == row
    assert exact_of({**row, "notes": [note]}) == {name: 1 for name in row if name != "macs_train"}
    assert str(note) == "the module draws its structure: macs_train is 1 under one seed and 2 under another"
