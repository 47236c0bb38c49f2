"""The command line: each command parses, calls one function, prints. Its file is imported when it is asked for."""

import importlib
import os
import signal
import warnings
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ctxbench import this_machine
from ctxbench.cli import streams, surroundings
from ctxbench.cli.options import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_USAGE, check_texts
from ctxbench.conditions import CONDITIONS
from ctxbench.engine.apart import Apart
from ctxbench.errors import AlteredRun, EngineError, UsageError
from ctxbench.terminal import say

# Each command with its line in the help. The file and the function have the command's name, where Python allows it.
COMMANDS = {
    "run": "Measure the cases of a suite, write a run folder and print its table.",
    "resume": "Measure what a run folder lacks, with the settings that it was begun with, and print its table.",
    "show": "Print a module's paper, hyper-parameters and closed forms; with --shape also its params and MACs.",
    "verify": "Check that a module meets the contract of context modules; print one line for each check.",
    "compare": "Verify your modules, measure them beside those of the registry, and print a ranking.",
    "new": "Write a new file with a small working module to start from.",
    "memory": "Predict a module's peak memory without a GPU; print what is in memory at the peak and what would "
    "lower it.",
    "predict": "Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is "
    "measured.",
    "profile": "Measure, or predict for a device, where in a module the time goes: by source line, submodule and "
    "operator.",
    "choose": "Print which modules fit into a memory at an input, the fastest first. All is predicted; nothing is "
    "measured.",
    "calibrate": "Measure a few kernels on this GPU or CPU and write a file that --device takes.",
    "report": "Write tables, figures and a page from run folders; measure nothing.",
    "diff": "Print the numbers in which two runs differ, as ratios with intervals.",
    "history": "Print what modules cost at each commit of a repository, and where a cost changed.",
    "check": "Check whether a change made a module slower, larger or broken: ok, regressed or inconclusive.",
    "audit": "Recount a published cost table; print a verdict on each figure. Nothing is measured.",
    "env": "Print the hardware, software and settings that a run records, as JSON.",
    "list": "List the modules that ctxbench and installed packages bring, by family; the suites; or the networks.",
}
FILES = {"list": "list_modules"}
# How the help arranges commands, and the options of those that have many; what is named nowhere comes last.
GROUPS = {
    "Measure": ("run", "resume", "compare", "profile"),
    "Predict": ("choose", "memory", "predict", "calibrate"),
    "Modules": ("list", "show", "new", "verify"),
    "Read and decide": ("report", "diff", "check", "history", "audit", "env"),
}
WHERE = ("device", "threads")
OPTIONS = {
    "What": (
        "suite", "modules", "module", *(name for name in CONDITIONS if name not in WHERE), "metrics", "chosen",
        "static", "counter",
    ),
    "How long": ("processes", "sample_s", "budget", "target", "dry_run", "force"),
    "Where": (*WHERE, "also_on", "out", "in_process"),
    "On a cluster": ("ray", "each_device"),
}  # fmt: skip
MANY_OPTIONS = 15
EXAMPLES = {
    "run": (
        "ctxbench run --static                                # counts and predicted memory, in seconds",
        "ctxbench run --modules ham_nmf,sa --shape 1,512,64,64 --set ham_nmf.steps=3",
        "ctxbench run --suite field --out results/field       # `ctxbench list --suites` has the suites",
    ),
    "compare": (
        "ctxbench compare my_module.py:MyContext --modules ham_nmf,sa --shape 1,64,32,32",
        "ctxbench compare my_module.py:MyContext --for h100-sxm --rank-by memory_train",
    ),
    "profile": (
        "ctxbench profile my_module.py:MyContext --shape 1,256,64,64 --html profile.html",
        "ctxbench profile sa --for a100-40gb --mode train      # predicted: nothing is measured",
    ),
    "choose": ("ctxbench choose --memory 2GiB --shape 2,512,96,96 --device a100-40gb,t4",),
    "calibrate": (
        "ctxbench calibrate --out my_gpu.toml                  # then: ctxbench predict sa --for my_gpu.toml",
        "ctxbench calibrate --device cpu --threads 1 --out my_cpu.toml",
    ),
    "report": (
        "ctxbench report results/table3-cpu",
        "ctxbench report RUN --columns params,macs,latency_infer --label tab:cost    # a LaTeX table",
    ),
    "audit": (
        "ctxbench audit hamburger",
        "ctxbench audit paper.toml --block mine=my_module.py:MyContext    # a table of your own",
    ),
    "check": (
        "ctxbench check --against main --module my_module.py:MyContext",
        "ctxbench check --self-test --inject 10%              # which changes can this machine detect?",
    ),
}


def _with_flags_off(params: list[Any]) -> list[Any]:
    """Options with False where typer's own flags, such as --help, have None: to convert that, it imports pydantic."""
    for each in params:
        if getattr(each, "is_flag", False) and each.default is None:
            each.default = False
    return params


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_flags_off(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        surroundings.check_working_folder()
        given, _, _ = self.make_parser(ctx).parse_args(args=[*args])
        check_texts(self.callback, self.get_params(ctx), given)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The options by what they are about, where there are many."""
        records = {each.name: record for each in self.get_params(ctx) if (record := each.get_help_record(ctx))}
        if len(records) >= MANY_OPTIONS:
            _write_groups(formatter, records, OPTIONS, "Other options")
        else:
            _write_groups(formatter, records, {}, "Options")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if examples := EXAMPLES.get(ctx.info_name):
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in examples))


class Commands(TyperGroup):
    """The commands by name and line; the one that is called is imported."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_flags_off(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands by what they are for."""
        limit = formatter.width - 6 - max(map(len, self.commands))
        records = {name: (name, each.get_short_help_str(limit * 3)) for name, each in self.commands.items()}
        _write_groups(formatter, records, GROUPS, "Other commands")

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else imported(name), rest


def _write_groups(
    formatter: Any, records: dict[str, tuple[str, str]], groups: dict[str, tuple[str, ...]], rest: str
) -> None:
    """A section for each group of records that are there, then one for the others."""
    grouped = {name for names in groups.values() for name in names}
    sections = {**groups, rest: tuple(name for name in records if name not in grouped)}
    for title, names in sections.items():
        if own := [records[name] for name in names if name in records]:
            with formatter.section(title):
                formatter.write_dl(own)


def imported(name: str) -> Any:
    """The command itself, its options included."""
    file = FILES.get(name, name)
    command = typer.Typer(add_completion=False, rich_markup_mode=None)
    command.command(name, cls=Command)(getattr(importlib.import_module(f"ctxbench.cli.{file}"), file))
    return get_command(command)


app = typer.Typer(
    name="ctxbench",
    cls=Commands,
    help="Benchmark global-context modules: the parameters, MACs, peak memory and latency of blocks that map "
    "[B, C, H, W] to [B, C', H, W].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's takes longer to import than all else
)
for _name, _line in COMMANDS.items():
    app.command(_name, short_help=_line)(lambda: None)


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
) -> None:
    pass


_as_python_does = warnings.showwarning
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
        with Apart():
            app()
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except SystemExit as end:
        if not end.code and (sentence := streams.unwritten()):
            _end(sentence)
        raise
    except EngineError as error:
        _end(surroundings.foreign() or str(error))
    except UsageError as error:
        _end(str(error))
    except Exception as error:
        import traceback

        if _while_interrupted(error):
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
    """Whether what failed was the handling of Ctrl-C, which may have left a package half imported."""
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
        _as_python_does(message, category, *where, **others)
