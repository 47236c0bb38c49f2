"""A drawing of the memory in use during one pass."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from ctxbench.base import disk
from ctxbench.plugins.memory.profile import MIB, MemoryProfile
from ctxbench.report.figures.style import plain

SHADES = {"forward": "#dbe9f6", "backward": "#fde6d2", "optimizer": "#e2f0d9"}


def plot(profile: MemoryProfile, path: Path) -> None:
    """Draw the bytes in use at each operator call, both passes shaded, the peak marked; the suffix is the format.

    UsageError if the file cannot be written.
    """
    with plain():
        figure = Figure(figsize=(9, 4), layout="constrained")
        axes = figure.add_subplot()
        steps = range(len(profile.timeline))
        axes.step(
            steps, [step.live_bytes / MIB for step in profile.timeline], where="mid", color="#333333", linewidth=1
        )
        for phase, shade in SHADES.items():
            inside = [i for i in steps if profile.timeline[i].phase == phase]
            if inside:
                axes.axvspan(inside[0] - 0.5, inside[-1] + 0.5, color=shade, label=phase, zorder=0)
        axes.axhline(profile.weights_bytes / MIB, color="#888888", linestyle=":", linewidth=1, label="weights")
        peak = profile.peak_step
        axes.plot([peak], [profile.peak_bytes / MIB], "v", color="#c0392b")
        at_left = peak < len(profile.timeline) / 2
        axes.annotate(
            f"{profile.peak_bytes / MIB:,.1f} MiB at {profile.at_op.removeprefix('aten.')}",
            (peak, profile.peak_bytes / MIB),
            xytext=(8 if at_left else -8, 6),
            textcoords="offset points",
            ha="left" if at_left else "right",
            color="#c0392b",
        )
        axes.margins(x=0, y=0.15)
        axes.set_ylim(bottom=0)
        axes.set(
            xlabel="operator calls",
            ylabel="memory in use [MiB]",
            title=f"{profile.module}, {profile.mode}: predicted for {profile.device}",
        )
        axes.legend(loc="lower right", fontsize="small")
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix[1:])
    disk.write(path, drawn.getvalue(), is_named=True)
