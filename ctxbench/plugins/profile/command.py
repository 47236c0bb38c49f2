"""`ctxbench profile`: where in a module the time goes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctxbench.base.errors import UsageError, unknown
from ctxbench.base.mode import MODES, Mode
from ctxbench.base.terminal import say
from ctxbench.cli.options import Module, Settings, case_of, complete_target, with_conditions
from ctxbench.cli.printing import render
from ctxbench.engine.isolated import IsolatedLoader

if TYPE_CHECKING:
    from ctxbench.plugins.profile.profile import Lines, Profile


@with_conditions("shape", "dtype", "memory_format", "network", "execution", "device", "threads", one=True)
def profile(
    module: Module,
    conditions: Mapping[str, str],
    target: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DEVICE",
            help="Predict for a device, such as a100-40gb or a TOML file, and measure nothing.",
            autocompletion=complete_target,
        ),
    ] = None,
    mode: Annotated[str, typer.Option(help="infer, train or both.")] = "both",
    lines: Annotated[
        str, typer.Option(help="own: the innermost line of your own code; inner: of any code outside PyTorch.")
    ] = "own",
    chosen: Settings = None,
    csv: Annotated[Path | None, typer.Option(help="Write all rows, by line, submodule and operator, as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page: the source with its costs, a tree, tables.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write timelines for Perfetto and speedscope into a folder.")
    ] = None,
) -> None:
    """Measure, or predict for a device, where in a module the time goes: by source line, submodule and operator.

    Rows are sorted by what would be saved at most, if they ran as fast as this machine multiplies matrices or moves
    numbers. The profiler's own overhead is told.
    """
    from ctxbench.plugins.profile.profile import LINES

    for name, value, allowed in (("mode", mode, (*MODES, "both")), ("lines", lines, LINES)):
        if value not in allowed:
            raise unknown(name, value, allowed)
    modes: tuple[Mode, ...] = MODES if mode == "both" else (mode,)  # type: ignore[assignment]  # checked above
    which: Lines = lines  # type: ignore[assignment]  # as above
    _check_places(csv, html, trace)
    found = _profiled(module, conditions, chosen, target, modes, trace)
    _print(found, which)
    _write(found, which, csv, html)
    if trace is not None:
        say(f"wrote {trace / 'trace.json'}, which ui.perfetto.dev shows")
        say(f"wrote {trace / 'profile.speedscope.json'}, which speedscope.app shows")


def _check_places(csv: Path | None, html: Path | None, trace: Path | None) -> None:
    """UsageError where a file cannot be written, before anything is measured."""
    from ctxbench.base import disk

    for option, path, suffix in (("--csv", csv, ".csv"), ("--html", html, ".html")):
        if path is not None:
            if path.suffix.lower() != suffix:
                raise UsageError(f"{option} {path}: the name of such a file ends in {suffix}")
            disk.check_place(path)
    if trace is not None:
        disk.make_folder(trace)


def _profiled(
    module: str,
    conditions: Mapping[str, str],
    chosen: list[str] | None,
    target: str | None,
    modes: tuple[Mode, ...],
    trace: Path | None,
) -> "Profile":
    from ctxbench import devices
    from ctxbench.executions import execution
    from ctxbench.plugins.predict.sheet import sheet
    from ctxbench.plugins.profile.profile import Profile

    with IsolatedLoader() as loader:
        case = case_of(module, {"device": "auto", **conditions}, chosen)
        for option, given in {"--execution": "execution" in conditions, "--device": "device" in conditions}.items():
            if target is not None and given:
                raise UsageError(f"{option} is for what is measured; with --for, eager passes are predicted")
        if "execution" in conditions and not (case.execution == "eager" or execution(case.execution).compiles):
            raise UsageError(f"--execution {case.execution} goes by no operator; profile takes eager or compile")
        if not devices.has_clock(case.device) and case.device != "auto":
            raise UsageError(f"--device {case.device}: nothing can be measured there; --for predicts")
        folder = str(trace.absolute()) if trace else None
        found: Profile = loader.ask(case, "profile", Profile, modes, sheet(target) if target else None, folder)
    return found


def _print(found: "Profile", lines: "Lines") -> None:
    from ctxbench.plugins.profile.profile import BYS
    from ctxbench.plugins.profile.tables import table
    from ctxbench.plugins.profile.texts import headline, roofline, sentences

    for mode, taken in found.passes.items():
        say(headline(found, mode))
        for by in BYS:
            say("")
            render(table(found, mode, by, lines))
        say("")
        for sentence in sentences(taken):
            say(f"- {sentence}")
        say("")
    say(roofline(found))


def _write(found: "Profile", lines: "Lines", csv: Path | None, html: Path | None) -> None:
    from ctxbench.base import disk
    from ctxbench.plugins.profile.page import render_profile
    from ctxbench.plugins.profile.texts import as_csv

    for path, make in ((csv, as_csv), (html, render_profile)):
        if path is not None:
            disk.write(path, make(found, lines))
            say(f"wrote {path}")
