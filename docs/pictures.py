"""The README's pictures: `peaks` of stored measurements, and the terminal, whose command measures on this machine.

docs/update.py draws the former. Run: python docs/pictures.py, on an idle machine, to make both.
"""

import io
import os
import subprocess
import sys

from gpu_runs import gpu_peaks, gpu_run
from lists import ROOT
from rich.console import Console
from rich.text import Text

from ctxbench.report.figures.labels import freeze_layout, place_labels
from ctxbench.report.figures.style import FAINT, new_figure, png_bytes, styled
from ctxbench.report.figures.ticks import log_axis

FIGURES = ROOT / "docs" / "figures"
COMMAND = "ctxbench compare examples/my_module.py:MyContext --modules ham_nmf,linear,mhsa,sa --shape 1,64,32,32"
COLUMNS = 132
# A prediction is named that is off by more percent: one written before the run, and one of today.
NAMED = {"then": 20, "today": 5}


def peaks() -> None:
    """Draw each peak of the newest run on a GPU, predicted against measured, with the far ones named."""
    found = gpu_peaks()
    mib, then, today = found["measured_bytes"] / 2**20, 100 * found["then"], 100 * found["card"]
    marked = found["marks"].notna()
    with styled():
        figure = new_figure(6.9, 3.0)
        axes = figure.add_subplot()
        axes.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        written = f"written before the run: {(then.abs() <= 1).sum()} within 1 %"
        axes.scatter(mib, then, s=12, facecolors="none", edgecolors="#888888", linewidths=0.6, label=written)
        for own, colour, label in ((~marked, "#0072B2", "without a mark"), (marked, "#D55E00", "marked as uncertain")):
            near = f"today with cuDNN, {label}: {(today[own].abs() <= 1).sum()} of {own.sum()}"
            axes.scatter(mib[own], today[own], s=9, color=colour, linewidths=0, label=near)
        log_axis(axes, "x")
        axes.set(xlabel="measured peak, MiB", ylabel="predicted peak, % off", ylim=(None, 35))
        axes.set_title(
            f"{len(found)} peaks of {found['module'].nunique()} blocks, {gpu_run()['gpu']['GPU']}", loc="left"
        )
        axes.legend(loc="upper right", frameon=False)
        freeze_layout(figure)
        errors = {"then": then, "today": today}
        points = {
            (size, error): module
            for key, percent in errors.items()
            for size, error, module in zip(mib, percent, found["module"], strict=True)
            if abs(error) > NAMED[key]
        }
        others = [(size, error) for size, error in zip(mib, then, strict=True) if (size, error) not in points]
        x, y = zip(*points, strict=True)
        place_labels(axes, x, y, [*points.values()], [2.0] * len(points), others)
        (FIGURES / "gpu_peaks.png").write_bytes(png_bytes(figure))


def terminal() -> None:
    """Run COMMAND as a person does, and draw what the terminal shows, in its colours."""
    program, *words = COMMAND.split()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    shown = subprocess.run(
        [sys.executable, "-m", program, *words],
        cwd=ROOT,
        env=environment,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {COMMAND}\n"), Text.from_ansi(shown), sep="\n")
    console.save_svg(str(FIGURES / "compare.svg"), title="ctxbench compare", unique_id="compare")


if __name__ == "__main__":
    peaks()
    terminal()
