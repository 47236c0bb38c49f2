"""Memory over a pass, from the predictor: small multiples with the same axes, a module each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ctxbench.base.mode import MODES, Mode
from ctxbench.model.metric import MIB, RecordRow
from ctxbench.model.metrics import quantity
from ctxbench.plugins.memory.metric import TARGETS
from ctxbench.report.figures.kind import FigureKind
from ctxbench.report.figures.layout import NAME, PAGE, FigureSize, multiples, wrapped
from ctxbench.report.figures.style import INK, SMALL, Drawing, looks
from ctxbench.report.figures.ticks import log_axis
from ctxbench.report.panels import Panel, label_of, origin_of
from ctxbench.results.rows import by_values
from ctxbench.results.tables import PHASES

MOST_COURSES = 32
# The axis ends at this share of the smallest peak: below it is little more than weights.
_LOWEST = 0.1


@dataclass(frozen=True)
class Course:
    """The live bytes of one row in each mode: places (0 to 2) and MiB, a value standing until the next."""

    panel: Panel
    row: RecordRow
    modes: dict[Mode, tuple[list[float], list[float]]]

    @property
    def peak(self) -> float:
        return max(max(mib) for _, mib in self.modes.values())

    def same_as(self, other: "Course") -> bool:
        """Return whether both say the same of the same module: a prediction does not depend on the machine."""
        return label_of(self.row) == label_of(other.row) and self.modes == other.modes


def courses_of(panels: Sequence[Panel]) -> Iterator[Course]:
    """A course for each of the panels' main rows that has one; of the same ones the first."""
    found: list[Course] = []
    for panel in panels:
        groups = by_values(panel.run.timeline, "case", "mode")
        for row in panel.main:
            modes = {
                mode: _placed(groups[row["case"], mode]) for mode in reversed(MODES) if (row["case"], mode) in groups
            }
            course = Course(panel, row, modes)
            if modes and course.peak > 0 and not any(course.same_as(other) for other in found):
                found.append(course)
                yield course


def memory_over_time(panels: Sequence[Panel], sheet: FigureSize = PAGE) -> Drawing:
    """Training filled, inference dashed, on a log axis; the peaks are marked and written above."""
    courses = list(courses_of(panels))
    shown = courses[:MOST_COURSES]
    figure, placed = multiples("Memory over a pass", shown, sheet, 1.7, 1.35, share=True, origins=("predicted",))
    drawing = Drawing(figure, _caption(courses, shown))
    peaks = [course.peak for course in shown]
    low = _LOWEST * min(peaks)
    end = 2 if any("train" in course.modes for course in shown) else 1
    appearance = looks(str(course.row["module"]) for course in shown)
    for part, drawn in placed:
        for axes, course in drawn:
            _course_axes(drawing, axes, course, low, appearance[course.row["module"]].colour)
        first = drawn[0][0]
        first.set(xlim=(0, end), ylim=(low, 1.6 * max(peaks)))
        log_axis(first, "y")
        panel = drawn[0][1].panel
        origin = origin_of(quantity("memory_train"), panel.main)
        part.supylabel(f"memory, MiB\n({origin})", fontsize=SMALL)
    return drawing


def _placed(timeline: Sequence[RecordRow]) -> tuple[list[float], list[float]]:
    """Places and MiB of a mode: the forward pass from 0 to 1, the backward pass from 1 to 2, calls evenly spaced."""
    at: list[float] = []
    mib: list[float] = []
    for number, phase in enumerate(PHASES):
        if part := [each for each in timeline if each["phase"] == phase]:
            first, count = part[0]["step"], part[-1]["step"] - part[0]["step"] + 1
            at += [*(number + (each["step"] - first) / count for each in part), number + 1.0]
            mib += [each["bytes"] / MIB.factor for each in part]
            mib.append(mib[-1])
    return at, mib


def _course_axes(drawing: Drawing, axes: Axes, course: Course, low: float, colour: str) -> None:
    peaks = []
    for mode, live in course.modes.items():
        at, mib = live[0], [max(each, low) for each in live[1]]
        peak = mib.index(max(mib))
        text = f"{mode} {max(live[1]):,.0f}"
        if mode == "train":
            area = axes.fill_between(at, low, mib, step="post", color=colour, alpha=0.35, linewidth=0)
            area.set_gid(drawing.detail(f"{label_of(course.row)}: peak {text} MiB"))
        style = "-" if mode == "train" else (0, (3, 1.5))
        axes.step(at, mib, where="post", color=colour if mode == "train" else INK, linewidth=1, linestyle=style)
        (mark,) = axes.plot(at[peak], mib[peak], "v", color=INK, markersize=4, zorder=4)
        mark.set_gid(drawing.detail(f"{label_of(course.row)}: peak {text} MiB"))
        peaks.append(text)
    axes.axvline(1, color=INK, linewidth=0.6, linestyle=":")
    name = wrapped(label_of(course.row), NAME)
    axes.set_title(f"{name}\n{', '.join(peaks)} MiB", loc="left", fontsize=SMALL)
    axes.set_xticks([0.5, 1.5], PHASES, fontsize=SMALL)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")


def _caption(courses: Sequence[Course], shown: Sequence[Course]) -> str:
    targets = dict.fromkeys(str(course.row["memory_predicted_for"]) for course in shown)
    target = ", ".join(TARGETS.get(name, name) for name in targets)
    omitted = f" Shown: the first {len(shown)} of {len(courses)}." if len(shown) < len(courses) else ""
    return (
        f"Memory in use over the operator calls of a pass, predicted for {target}: training filled, inference dashed, "
        f"peaks marked.{omitted}"
    )


FIGURES = (
    FigureKind("memory", "Memory over a pass", "timeline.csv, which runs with the metric memory write",
         lambda panel: [*courses_of([panel])], memory_over_time, order=80),
)  # fmt: skip
