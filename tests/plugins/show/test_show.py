"""`ctxbench show`: facts of a module, its counts, and what cannot be counted."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from ctxbench.plugins.macs.tools import counters, not_run, readings

Command = Callable[..., Done]


@pytest.mark.processes
def test_show_prints_facts_and_costs(command: Command) -> None:
    done = command("show", "ham_nmf", "--shape", "1,512,128,128", "--set", "ham_nmf.steps=7")
    assert "Is Attention Better Than Matrix Decomposition?" in " ".join(done.stdout.split())
    assert "525,824" in done.stdout
    assert "18,772,885,504  18,772,885,504" in done.stdout


@pytest.mark.processes
def test_macs_are_shown_by_operator(command: Command) -> None:
    done = command("show", "sa", "--shape", "1,512,128,128", "--by-operator")
    positions, width = 16384, 512
    products, projection = 2 * positions**2 * width, positions * width**2
    rows = [line.split() for line in done.stdout.splitlines() if line.rstrip().endswith("%")]
    assert [(name, *cells[::2]) for name, *cells in rows] == [
        ("bmm", f"{products:,}", f"{3 * products:,}"),
        ("convolution", f"{4 * projection:,}", f"{4 * projection:,}"),
        ("convolution_backward", f"{(3 + 2) * projection:,}"),
    ]
    assert [row[-1] for row in rows] == ["95.5%", "2.0%", "2.5%"]
    assert f"macs_train {9 * projection + 3 * products:,}" in " ".join(done.stdout.split())
    assert "--by-operator goes with --shape" in command("show", "sa", "--by-operator").stderr


@pytest.mark.processes
def test_show_has_a_line_for_each_other_counter(command: Command) -> None:
    done = command("show", "sa", "--shape", "1,8,6,5", "--as", "all")
    assert done.returncode == 0
    products, projections, biases = 2 * 30**2 * 8, 4 * 30 * 8**2, 4 * 30 * 8
    whole = products + projections
    found = {line[0]: line[1:] for each in done.stdout.splitlines() if "@" in (line := re.split(" {2,}", each))[0]}
    params = f"{4 * 8**2 + 4 * 8:,}"
    whole_of = f"x{whole / whole:.3f}"
    assert found["fvcore@0.1.5"][:4] == [params, f"{whole:,}", "flops", whole_of]
    assert found["thop@0.1.1"][:4] == [params, f"{projections:,}", "MACs", f"x{projections / whole:.3f}"]
    assert found["thop@0.1.1"][4].startswith(f"leaves out {products:,} MACs ({products / whole:.1%}), most of them in")
    assert found["ultralytics-thop@2.2.3"][:3] == [params, f"{whole:,}", "MACs"]
    assert found["ptflops@0.7.5"][:3] == [params, f"{whole + biases:,}", "MACs"]
    assert found["deepspeed@0.19.8"][:3] == [params, f"{2 * whole + biases:,}", "FLOPs"]
    assert found["flop-counter-mode@2.13.0"][:3] == [f"{2 * whole:,}", "FLOPs", "x2.000"]
    plain = [name for name in readings() if "+" not in name]
    assert [name for name in found if ":" not in name] == [*plain, *not_run()]
    assert "A state that has no line prints what its version prints without it." in done.stdout
    wrong = command("show", "sa", "--shape", "1,8,6,5", "--as", "nonsense")
    assert wrong.returncode == 2
    assert "nonsense" in wrong.stderr
    assert all(name in wrong.stderr for name in (*counters(), "all"))
    wrong = command("show", "sa", "--shape", "1,8,6,5", "--as", "thop@3")
    assert (wrong.returncode, "known: thop@0.1.1, thop@0.1.1+folded-norms" in wrong.stderr) == (2, True)
    assert "--as goes with --shape" in command("show", "sa", "--as", "thop").stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("forward", "code", "sentence"),
    [
        ("(x * 2).detach()", 0, "no macs_train: the output of Mine depends on nothing that has a gradient"),
        ("x * x.sum().item()", 2, "Mine cannot be counted without data, because mine.py:9 reads the values of"),
    ],
)
def test_what_cannot_be_counted_is_said(
    tmp_path: Path, command: Command, forward: str, code: int, sentence: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from torch import nn\n\n\nclass Mine(nn.Module):\n    def __init__(self, channels):\n"
        f"        super().__init__()\n\n    def forward(self, x):\n        return {forward}\n"
    )
    done = command("show", f"{path}:Mine", "--shape", "1,8,4,4")
    assert done.returncode == code
    assert sentence in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
