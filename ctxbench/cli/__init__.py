"""The command line: each command parses, calls one function, prints. Its file is imported when it is asked for."""

import os
import signal
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ctxbench.base import clocks as this_machine
from ctxbench.base import terminal
from ctxbench.base.errors import AlteredRun, EngineError, UsageError
from ctxbench.base.extras import with_science
from ctxbench.base.terminal import say
from ctxbench.cli import commands as own_commands
from ctxbench.cli import streams, surroundings
from ctxbench.cli.options import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_USAGE, check_texts
from ctxbench.engine.isolated import IsolatedLoader
from ctxbench.model.conditions import CONDITIONS
from ctxbench.plugin import Command, Plugin, PluginError, brought
from ctxbench.table.result import Stopped

# How the help arranges commands, and the options of those that have many; what is named nowhere comes last.
GROUPS = ("Measure", "Predict", "Modules", "Read and decide")
WHERE = ("device", "threads")
OPTIONS = {
    "What": (
        "suite", "modules", "module", *(name for name in CONDITIONS if name not in WHERE), "metrics", "hparams",
        "static", "counter",
    ),
    "How long": ("processes", "sample_s", "budget", "total_s", "target", "dry_run"),
    "Where": (*WHERE, "also_on", "out", "force", "in_process"),
}  # fmt: skip
MANY_OPTIONS = 15
METAVARS = {Path: "PATH", int: "N", float: "NUMBER"}
INTERRUPTED = "interrupted: all files that were written are complete"


@cache
def known_commands() -> dict[str, tuple[Command, Callable[[], Callable[..., None]]]]:
    """Each command by name, in the order of the help, and what imports its function.

    PluginError for a name that a plugin brings and the core has.
    """
    core = Plugin("what every installation has", package=own_commands.__name__)
    declared = [(core, item) for item in own_commands.COMMANDS.items()]
    for plugin, (name, command) in brought("commands"):
        if name in own_commands.COMMANDS:
            raise PluginError(f"the plugin {plugin.name} brings the command {name!r}, which ctxbench itself has")
        declared.append((plugin, (name, command)))
    groups = [*GROUPS, *(command.group for _, (_, command) in declared)]
    declared.sort(key=lambda each: (groups.index(each[1][1].group), each[1][1].order, each[1][0]))
    return {name: (command, partial(plugin.load, command.run)) for plugin, (name, command) in declared}


def _with_flags_off(params: list[Any]) -> list[Any]:
    """Options with False where typer's own flags, such as --help, have None: to convert that, it imports pydantic."""
    for each in params:
        if getattr(each, "is_flag", False) and each.default is None:
            each.default = False
    return params


def _named(params: list[Any], types: dict[str, Any]) -> list[Any]:
    """Arguments and options with the word that stands for their value in the help: MODULE, PATH, N."""
    for each in params:
        if each.metavar is None and not getattr(each, "is_flag", False):
            kinds = {types.get(each.name), *get_args(types.get(each.name))}
            word = each.name.upper() + "..." * (each.nargs == -1)
            is_option = each.param_type_name == "option"
            each.metavar = next((METAVARS[kind] for kind in METAVARS if kind in kinds and is_option), word)
    return params


def _arguments(params: list[Any]) -> list[Any]:
    return [each for each in params if each.param_type_name == "argument"]


class ShownCommand(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _named(_with_flags_off(super().get_params(ctx)), get_type_hints(self.callback))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        surroundings.check_working_folder()
        given, _, _ = self.make_parser(ctx).parse_args(args=[*args])
        check_texts(self.callback, self.get_params(ctx), given)
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        values = _arguments(self.get_params(ctx))
        words = [each.metavar if each.required else f"[{each.metavar.strip('[]')}]" for each in values]
        formatter.write_usage(ctx.command_path, " ".join(["[OPTIONS]", *words]))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then the options, by what they are about where there are many: first the command's own groups,
        its options with a `rich_help_panel`.
        """
        params = self.get_params(ctx)
        records = {each.name: record for each in params if (record := each.get_help_record(ctx))}
        values = _arguments(params)
        records |= {each.name: (each.metavar, records[each.name][1]) for each in values}  # typer adds Python's type
        arguments = {"Arguments": tuple(each.name for each in values)}
        if len(records) >= MANY_OPTIONS:
            own: dict[str, tuple[str, ...]] = {}
            for each in params:
                panel = getattr(each, "rich_help_panel", None)
                own |= {panel: (*own.get(panel, OPTIONS.get(panel, ())), each.name)} if panel else {}
            _write_groups(formatter, records, {**arguments, **own, **OPTIONS, **own}, "Other options")
        else:
            _write_groups(formatter, records, arguments, "Options")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        command, _ = known_commands()[ctx.info_name]
        if command.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in command.examples))


class ShownCommands(TyperGroup):
    """The commands by name and line; the one that is called is imported."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_flags_off(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        records = {name: (name, each.get_short_help_str(limit * 3)) for name, each in self.commands.items()}
        groups: dict[str, tuple[str, ...]] = {}
        for name, (command, _) in known_commands().items():
            groups[command.group] = (*groups.get(command.group, ()), name)
        _write_groups(formatter, records, groups, "Other commands")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Stopped as stop:
            from ctxbench.cli.printing import print_stopped

            print_stopped(stop)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except KeyboardInterrupt:  # also while the command is imported; typer would end without a word
            say(INTERRUPTED, stderr=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] not in self.commands and (more := with_science("more commands")):
            ctx.fail(f"No such command {args[0]!r}{more}")
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else imported(name), rest


def _write_groups(
    formatter: Any, records: dict[str, tuple[str, str]], groups: dict[str, tuple[str, ...]], rest: str
) -> None:
    """A section for each group of records that are there, then one for the others; each record once."""
    left = dict(records)
    for title, names in {**groups, rest: tuple(records)}.items():
        if own := [left.pop(name) for name in names if name in left]:
            with formatter.section(title):
                formatter.write_dl(own)


def imported(name: str) -> Any:
    """The command itself, its options included."""
    command = typer.Typer(add_completion=False, rich_markup_mode=None)
    command.command(name, cls=ShownCommand)(known_commands()[name][1]())
    return get_command(command)


app = typer.Typer(
    name="ctxbench",
    cls=ShownCommands,
    help="Benchmark global-context modules: the parameters, MACs, peak memory and latency of blocks that map "
    "[B, C, H, W] to [B, C', H, W].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's takes longer to import than all else
)
for _name, (_command, _) in known_commands().items():
    app.command(_name, short_help=_command.line)(lambda: None)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"ctxbench {version('ctxbench')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also say what is counted again, and why.")] = False,
) -> None:
    terminal.is_verbose = verbose


# Seconds. Of a terminal that closes both the kernel and the shell send SIGHUP.
_ONCE_S = 1.0


def main() -> None:
    """Entry point: a wrong input, or what the machine lacks, is one sentence on standard error and exit code 2.

    A defect of ctxbench itself has its own exit code, so that it is not taken for a verdict. SIGTERM, with which CI
    systems cancel a job, and SIGHUP, which a closed terminal sends, end a command as Ctrl-C does.
    """
    # Where the system has no thread left, OpenBLAS, which numpy imports, raises the signal of Ctrl-C.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        _handle_signals()
        streams.prepare()
        warnings.showwarning = _show_warning
        with IsolatedLoader():
            app()
    except KeyboardInterrupt:
        say(INTERRUPTED, stderr=True)
        raise SystemExit(EXIT_INTERRUPTED) from None
    except SystemExit as end:
        if not end.code and (sentence := streams.unwritten()):
            _end(sentence)
        raise
    except EngineError as error:
        _end(surroundings.foreign() or str(error))
    except (UsageError, PluginError) as error:
        _end(str(error))
    except Exception as error:
        import traceback

        if _while_interrupted(error):
            say(INTERRUPTED, stderr=True)
            raise SystemExit(EXIT_INTERRUPTED) from None
        if sentence := surroundings.sentence(error):
            _end(sentence)
        say(traceback.format_exc().rstrip(), stderr=True)
        raise SystemExit(EXIT_INTERNAL) from None


def _handle_signals() -> None:
    """Have SIGTERM and SIGHUP interrupt; one that the caller ignores, as `nohup` does, stays ignored."""
    interrupted_at = -_ONCE_S

    def interrupt(number: int, frame: Any) -> None:
        nonlocal interrupted_at
        before, interrupted_at = interrupted_at, this_machine.here.wall_s()
        if interrupted_at - before >= _ONCE_S:
            raise KeyboardInterrupt

    for each in (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, interrupt)


def _while_interrupted(error: BaseException) -> bool:
    """Return whether the handling of Ctrl-C failed, which may have left a package half imported."""
    before = error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _while_interrupted(before))


def _end(sentence: str) -> NoReturn:
    say(f"ctxbench: {sentence}", stderr=True)
    raise SystemExit(EXIT_USAGE) from None


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **others: Any) -> None:
    """A warning of ours as a sentence; any other as Python shows it."""
    if issubclass(category, AlteredRun):
        say(f"ctxbench: {message}", stderr=True)
    else:
        say(warnings.formatwarning(message, category, *where[:2]).rstrip(), stderr=True)
