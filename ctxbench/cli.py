"""The command line: parse, call one function, print."""

import json
import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxbench import metrics as known_metrics
from ctxbench.errors import UsageError

if TYPE_CHECKING:
    from ctxbench.progress import Quiet, QuietGate
    from ctxbench.ranking import Ranking
    from ctxbench.suite import Overrides

app = typer.Typer(
    name="ctxbench",
    help="Benchmark global-context modules: the parameters, MACs, peak memory and latency of blocks that map "
    "[B, C, H, W] to [B, C', H, W].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
ASKED_FOR = [name for name, metric in known_metrics.metrics().items() if metric.asked_for]
RANKED = [key for key, quantity in known_metrics.quantities().items() if quantity.better]
EXIT_FAILED_CASES = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130

Shape = Annotated[
    list[str] | None, typer.Option("--shape", metavar="B,C,H,W", help="Input shape; may be given several times.")
]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--modules",
        "--module",
        metavar="NAME[,NAME]",
        help="Modules: keys, path.py:Class or package.module:Class, with commas; may be given several times.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="Such as float32 or float32,bfloat16.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Threads = Annotated[str | None, typer.Option(help="Number of CPU threads, such as 1 or 1,2.")]
Processes = Annotated[
    int | None, typer.Option(help="Fresh processes for each case's latency; fewer than 3 give no interval.")
]
Budget = Annotated[
    float | None, typer.Option(help="Seconds for the latency samples of a mode in each process, at most.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="[MODULE.]NAME=VALUE",
        help="Set a hyper-parameter, such as steps=3 or ham_nmf.steps=3; one that is given twice has both values.",
    ),
]


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


def main() -> None:
    """Entry point: a wrong input is one sentence on standard error and exit code 2.

    A defect of ctxbench itself has its own exit code, so that it is not taken for a verdict. SIGTERM, with which CI
    systems cancel a job, ends a command as Ctrl-C does.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except UsageError as error:
        print(f"ctxbench: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
    except Exception:
        traceback.print_exc()
        raise SystemExit(EXIT_INTERNAL) from None


def complete_suite() -> list[str]:
    from ctxbench import suite

    return suite.available()


def complete_module() -> list[str]:
    from ctxbench import registry

    return registry.names()


def complete_target() -> list[str]:
    from ctxbench.predict.sheets import sheets

    return [*sheets()]


@app.command()
def run(
    context: typer.Context,
    suite: Annotated[
        str, typer.Option(help="A suite's name, or the path of a TOML file.", autocompletion=complete_suite)
    ] = "table3",
    modules: Modules = None,
    shape: Shape = None,
    dtype: Dtype = None,
    device: Device = None,
    memory_format: Annotated[str | None, typer.Option(help="contiguous, channels_last or both with a comma.")] = None,
    execution: Annotated[str | None, typer.Option(help="eager, compile, graph with a comma.")] = None,
    threads: Threads = None,
    metrics: Annotated[
        str | None, typer.Option(help=f"Metrics to measure, separated by commas: {', '.join(ASKED_FOR)}.")
    ] = None,
    chosen: Settings = None,
    processes: Processes = None,
    budget: Budget = None,
    target: Annotated[
        float | None,
        typer.Option(help="End a process's samples at this relative half-width of their median's interval, as 0.02."),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Only params, MACs and predicted memory; no module is timed.")
    ] = False,
    counter: Annotated[str, typer.Option(help="What counts the MACs: ctxbench or torchprofile.")] = "ctxbench",
    out: Annotated[Path | None, typer.Option(help="The run folder; default: results/<suite>-<time>.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the interrupted run in this run folder.")] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: also measure the failed cases again.")
    ] = False,
    predict_for: Annotated[
        str | None,
        typer.Option("--for", metavar="DEVICE[,DEVICE]", help="Also predict times on these devices, such as h100-sxm."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the cases with predicted memory and estimated time; measure nothing."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also measure cases that are predicted not to fit into memory.")
    ] = False,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="For debugging: measure in this process, not in fresh ones.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Spread the cases over a Ray cluster: HOST:PORT, or local for this host."),
    ] = None,
    each_device: Annotated[
        bool,
        typer.Option("--each-device", help="With --ray: every kind of device measures every case, in its own folder."),
    ] = False,
) -> None:
    """Measure the cases of a suite, write a run folder and print its table.

    Exit codes: 0 all cases are ok, 1 a case failed, 2 wrong input.
    """
    from ctxbench import api, cluster, describe, settings
    from ctxbench.suite import load

    _check_resume_options(context)
    _check_ray_options(context)
    shown = _reporter()
    try:
        if resume is not None and ray is not None:
            runs = cluster.resume(resume, ray, retry_failed=retry_failed, reporter=shown)
        elif resume is not None:
            runs = [api.resume(resume, retry_failed=retry_failed, in_process=in_process, reporter=shown)]
        else:
            overrides = replace(
                _overrides(
                    shape,
                    dtype,
                    device,
                    threads,
                    processes=processes,
                    budget_s=budget,
                    target=target,
                    predict_for=_split(predict_for),
                ),
                modules=_names(modules),
                memory_format=_split(memory_format),
                execution=_split(execution),
                metrics=_split(metrics),
                hparams=settings.parse(chosen or []),
            )
            loaded = load(suite, overrides)
            if dry_run:
                _print(describe.plan(api.plan(loaded, static=static)))
                return
            if ray is not None:
                runs = cluster.run(
                    loaded, ray, each_device=each_device, counter=counter, out=out, force=force, reporter=shown
                )
            else:
                runs = [
                    api.run_suite(
                        loaded,
                        static=static,
                        counter=counter,
                        out=out,
                        force=force,
                        in_process=in_process,
                        reporter=shown,
                    )
                ]
    except KeyboardInterrupt as stop:
        _print_interrupted(stop, "" if ray is None else f" --ray {ray}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    for each in runs:
        _print_table(each.path)
    if any(each.failed for each in runs):
        raise typer.Exit(EXIT_FAILED_CASES)


@app.command("list")
def list_modules() -> None:
    """List the modules that ctxbench and installed packages bring."""
    from rich.markup import escape
    from rich.table import Table

    from ctxbench import registry

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("key", "title", "family", "year"):
        table.add_column(column, style="bold" if column == "key" else None)
    for entry in registry.entries():
        title = f"[red]broken[/]: {escape(entry.broken)}" if entry.broken else escape(entry.title)
        table.add_row(escape(entry.key), title, entry.family, str(entry.year or ""))
    _print(table)


@app.command()
def show(
    module: Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    shape: Shape = None,
    chosen: Settings = None,
    by_operator: Annotated[
        bool, typer.Option("--by-operator", help="With --shape: also the MACs of each operator.")
    ] = False,
) -> None:
    """Print a module's paper, hyper-parameters and closed forms; with --shape also its params and MACs."""
    from ctxbench import describe, registry, settings
    from ctxbench.suite import parse_shape

    entry = registry.get(module)
    names = module, entry.key, settings.class_name(entry.reference)
    hparams = entry.check_hparams(settings.of_one_module(chosen or [], *names))
    for option, given in (("--set", hparams), ("--by-operator", by_operator)):
        if given and not shape:
            raise UsageError(f"{option} goes with --shape: without an input shape, no cost is computed")
    for table in describe.module(entry):
        _print(table)
    for each in shape or []:
        for text in describe.costs(entry, parse_shape(each), hparams, by_operator):
            _print(text)


@app.command()
def verify(
    module: Annotated[
        str,
        typer.Argument(
            help="path.py:Class, package.module:Class or a key. Its code is run.", autocompletion=complete_module
        ),
    ],
    chosen: Settings = None,
    channels: Annotated[int, typer.Option(min=1, help="Number of channels of the inputs.")] = 64,
    size: Annotated[tuple[int, int], typer.Option(metavar="H W", help="Height and width of the usual input.")] = (
        11,
        9,
    ),
    timeout: Annotated[float, typer.Option(min=1, help="Stop a check after this many seconds.")] = 60.0,
) -> None:
    """Check that a module meets the contract of context modules; print one line for each check.

    A failed check has a hint. Exit codes: 0 the contract is met, 1 it is broken, 2 nothing to check.
    """
    from ctxbench import settings
    from ctxbench.contract import lines
    from ctxbench.engine.client import ForkServer
    from ctxbench.verify import verify as check_module

    with ForkServer(static=False) as server:
        results = check_module(
            module,
            server,
            channels=channels,
            hparams=settings.of_one_module(chosen or [], module, settings.class_name(module)),
            size=size,
            timeout_s=timeout,
            on_result=lambda result: _print(lines.line(result)),
        )
    _print(lines.summary(module, results))
    if any(result.broken for result in results):
        raise typer.Exit(EXIT_FAILED_CASES)


@app.command()
def compare(
    candidates: Annotated[
        list[str], typer.Argument(help="Your modules: path.py:Class, package.module:Class or keys. Their code is run.")
    ],
    against: Annotated[
        str | None, typer.Option(help="Keys of registry modules, separated by commas; default: all.")
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="Inputs and settings: a suite's name, or the path of a TOML file.", autocompletion=complete_suite
        ),
    ] = "compare",
    shape: Shape = None,
    dtype: Dtype = None,
    device: Device = None,
    threads: Threads = None,
    processes: Processes = None,
    budget: Budget = None,
    chosen: Settings = None,
    rank_by: Annotated[str, typer.Option(help=f"Rank by one of {', '.join(RANKED)}.")] = "latency_infer",
    reuse: Annotated[
        Path | None, typer.Option(help="Copy the rows of registry modules from this earlier run folder.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also measure modules that do not meet the contract.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder; default: results/compare-<time>.")] = None,
) -> None:
    """Verify your modules, measure them beside those of the registry, and print a ranking."""
    from ctxbench import api, settings
    from ctxbench import compare as comparing
    from ctxbench.contract import lines
    from ctxbench.engine.client import ForkServer

    request = comparing.Request(candidates, _split(against), settings.parse(chosen or []))
    comparing.check_names(request, suite, rank_by)
    with ForkServer() as server:
        environment = api.machine(server)
        broken: list[str] = []
        for candidate in candidates:
            for name, results in comparing.check_contract(request, candidate, server):
                for result in results:
                    if result.outcome == "failed":
                        _print(lines.line(result))
                _print(lines.summary(name, results))
                broken += [candidate] if any(result.broken for result in results) else []
    if broken and not anyway:
        print("nothing was measured; fix the module, or use --anyway to measure it as it is", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED_CASES)
    overrides = _overrides(shape, dtype, device, threads, processes=processes, budget_s=budget)
    cases, seconds = comparing.expected_s(request, suite, overrides)
    print(
        f"{cases} cases: about {seconds / 60:.1f} minutes, more where a pass is longer than the budget", file=sys.stderr
    )
    try:
        finished = comparing.measure(
            request,
            environment,
            suite=suite,
            overrides=overrides,
            broken=broken,
            reuse=reuse,
            out=out,
            reporter=_reporter(),
        )
    except KeyboardInterrupt as stop:
        _print_interrupted(stop)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    for ranking in comparing.rankings(finished):
        _print_ranking(ranking, rank_by)
    print(f"run folder: {finished.path}")
    if finished.failed:
        raise typer.Exit(EXIT_FAILED_CASES)


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="The file to write, such as my_module.py.")],
    class_name: Annotated[
        str | None, typer.Option("--class", help="The name of the class; default: made from the file's name.")
    ] = None,
) -> None:
    """Write a new file with a small working module to start from."""
    from ctxbench import template

    reference = template.write(path, class_name)
    print(f"wrote {path}; next: ctxbench verify {reference}")


@app.command()
def memory(
    module: Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    shape: Annotated[str, typer.Option(metavar="B,C,H,W", help="Input shape.")] = "1,512,128,128",
    mode: Annotated[str, typer.Option(help="train or infer.")] = "train",
    device: Annotated[str, typer.Option(help="Predict for cuda, cuda-2020 or cpu.")] = "cuda",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    chosen: Settings = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the memory in use over the pass into this .png or .svg.")
    ] = None,
) -> None:
    """Predict a module's peak memory without a GPU; print what is in memory at the peak and what would lower it."""
    from ctxbench import describe, registry, settings
    from ctxbench.suite import parse_shape

    entry = registry.get(module)
    names = module, entry.key, settings.class_name(entry.reference)
    hparams = entry.check_hparams(settings.of_one_module(chosen or [], *names))
    for part in describe.memory(entry, parse_shape(shape), hparams, mode, device, dtype, plot):
        _print(part)


@app.command()
def predict(
    module: Annotated[
        str, typer.Argument(help="A key, path.py:Class or package.module:Class.", autocompletion=complete_module)
    ],
    target: Annotated[
        str,
        typer.Option(
            "--for", metavar="DEVICE", help="Such as a100-40gb, or a TOML file.", autocompletion=complete_target
        ),
    ],
    shape: Annotated[str, typer.Option(metavar="B,C,H,W", help="Input shape.")] = "1,512,128,128",
    mode: Annotated[str, typer.Option(help="train or infer.")] = "infer",
    dtype: Annotated[str, typer.Option(help="float32, tf32, bfloat16, float16 or float64.")] = "float32",
    chosen: Settings = None,
) -> None:
    """Predict a module's time on a GPU that is not here; print by operator what bounds it. Nothing is measured."""
    from ctxbench import describe_time, registry, settings
    from ctxbench.predict.sheets import sheet
    from ctxbench.suite import parse_shape

    entry = registry.get(module)
    names = module, entry.key, settings.class_name(entry.reference)
    hparams = entry.check_hparams(settings.of_one_module(chosen or [], *names))
    for part in describe_time.passes(entry, parse_shape(shape), hparams, mode, sheet(target), dtype):
        _print(part)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are shown side by side.")],
    out: Annotated[Path, typer.Option(help="The folder for the page, tables and figures.")] = Path("ctxbench-report"),
    figures: Annotated[
        str | None, typer.Option(help="Names of figures, separated by commas; default: all that have data.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Also write a compact table of these quantities, such as params,macs,latency_infer."),
    ] = None,
    modules: Modules = None,
    shape: Shape = None,
    title: Annotated[str, typer.Option(help="The title of the compact table.")] = "",
    label: Annotated[str, typer.Option(help="The LaTeX label of the compact table.")] = "",
    notes: Annotated[
        str, typer.Option(help="Where the notes of the LaTeX tables stand: below, threeparttable or none.")
    ] = "below",
    titles: Annotated[
        bool, typer.Option("--titles", help="Name modules by title, not by key, in figures and sentences as in tables.")
    ] = False,
    published: Annotated[
        Path | None, typer.Option(help="A TOML file with published numbers, which stand beside the runs'.")
    ] = None,
    crossover: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:SECOND[,...]",
            help="From which n = H x W on the first module is cheaper than the second; default: the suite's pairs.",
        ),
    ] = None,
) -> None:
    """Write tables, figures and a page from run folders; measure nothing.

    --columns, --modules, --shape, --title and --label make a compact table for a paper beside the whole one. --modules
    and --shape also choose what the figures show.
    """
    from ctxbench.report import write_report
    from ctxbench.report.compact import Choice
    from ctxbench.results import run_folders
    from ctxbench.suite import load_published, parse_shape

    choice = None
    if any((columns, modules, shape, title, label)):
        shapes = ["x".join(map(str, parse_shape(text))) for text in shape or []]
        choice = Choice(_split(columns) or [], _names(modules) or [], shapes, title, label)
    numbers = load_published(published) if published else None
    pairs = _split(crossover) or ()
    folders = [folder for path in runs for folder in run_folders(path)]
    written = write_report(folders, out, _split(figures), choice, numbers, pairs, titles, notes)
    print(f"{len(written.files)} files; open {written.page}")


@app.command()
def check(
    against: Annotated[
        str | None, typer.Option(metavar="GIT_REF", help="Compare the working tree with this commit, branch or tag.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Compare with a stored run: a run folder, a records.csv or a pytest-benchmark JSON."),
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test", help="Compare the working tree with itself: which changes can this machine detect?"
        ),
    ] = False,
    inject: Annotated[
        str | None,
        typer.Option(metavar="CHANGE", help="With --self-test: slow down every other row by this much, such as 10%."),
    ] = None,
    suite: Annotated[
        str, typer.Option(help="A suite's name, or the path of a TOML file.", autocompletion=complete_suite)
    ] = "ci",
    modules: Modules = None,
    shape: Shape = None,
    dtype: Dtype = None,
    device: Device = None,
    threads: Threads = None,
    chosen: Settings = None,
    accept: Annotated[
        str | None, typer.Option(help="Exact costs that may grow, such as params,macs; their growth is still shown.")
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="With --against: a class that the other commit has under another name."),
    ] = None,
    margin: Annotated[
        str | None, typer.Option(help="The smallest change that matters; default: the suite's, else 5%.")
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for the whole check, such as 90s or 10m.")] = "5m",
    inconclusive_is: Annotated[
        str, typer.Option(help="fail: inconclusive rows give exit code 3; ok: they do not fail the check.")
    ] = "fail",
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary in Markdown to this file.")] = None,
) -> None:
    """Check whether a change made a module slower, larger or broken: ok, regressed or inconclusive.

    Exit codes: 0 ok, 1 regressed, 2 wrong input, 3 inconclusive, 4 newly broken or missing, 5 nothing compared.
    """
    from rich.console import Console

    from ctxbench import settings
    from ctxbench.gate import outputs, request, terminal
    from ctxbench.gate.check_against import check_against
    from ctxbench.gate.check_stored import check_stored
    from ctxbench.gate.self_test import self_test as test_itself
    from ctxbench.suite import load

    if sum([against is not None, baseline is not None, self_test]) != 1:
        raise UsageError("check takes one of --against GIT_REF, --baseline PATH and --self-test")
    if inject is not None and not self_test:
        raise UsageError(
            "--inject goes with --self-test: it slows down rows on purpose, to test whether the check finds them"
        )
    overrides = replace(
        _overrides(shape, dtype, device, threads), modules=_names(modules), hparams=settings.parse(chosen or [])
    )
    asked = request.Request(
        load(suite, overrides),
        request.parse_share(margin, "--margin") if margin is not None else None,
        request.parse_seconds(budget, "--budget"),
        request.parse_inconclusive_is(inconclusive_is),
        request.parse_accepted(_split(accept) or []),
        request.parse_renamed(renamed or []),
    )
    console = Console()
    tested = None
    environ = dict(os.environ)
    try:
        if self_test:
            tested = test_itself(
                asked, request.parse_share(inject, "--inject") if inject is not None else 0.0, _gate_progress()
            )
            result, environ = tested.result, {}  # a job's summary does not get rows that are slowed down on purpose
        elif baseline is not None:
            result = check_stored(baseline, asked, _gate_progress())
        else:
            result = check_against(str(against), asked, _gate_progress())
    except KeyboardInterrupt:
        print("interrupted: no verdict, and nothing is left behind", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    outputs.emit(result, console, junit, json_path, markdown, environ, tested)
    if tested is not None:
        console.print(terminal.self_test_table(tested))
    raise typer.Exit(result.exit_code)


@app.command()
def env() -> None:
    """Print the hardware, software and settings that a run records, as JSON."""
    from ctxbench import environment

    print(json.dumps(environment.describe(), indent=2))


def _split(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None


def _names(texts: list[str] | None) -> list[str] | None:
    """The names in an option that may be given several times, each with commas."""
    return [name for text in texts for name in _split(text) or []] if texts else None


def _overrides(
    shape: list[str] | None,
    dtype: str | None,
    device: str | None,
    threads: str | None,
    **measure: float | list[str] | None,
) -> "Overrides":
    """What these options replace in a suite."""
    from ctxbench.suite import Overrides, parse_shape

    return Overrides(
        shape=[parse_shape(text) for text in shape] if shape else None,
        dtype=_split(dtype),
        device=_split(device),
        threads=_numbers(threads),
        measure={name: value for name, value in measure.items() if value is not None},
    )


def _numbers(text: str | None) -> list[int] | None:
    try:
        return [int(part) for part in _split(text) or []] or None
    except ValueError:
        raise UsageError(f"--threads {text!r} is not a comma-separated list of integers") from None


def _check_resume_options(context: typer.Context) -> None:
    """UsageError for an option that a resumed run would ignore, or that only a resumed run has."""
    given = [name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    resumed = {"resume", "retry_failed", "in_process", "ray"}
    others = [name for name in given if name not in resumed]
    if "resume" in given and others:
        option = {"chosen": "--set", "predict_for": "--for"}.get(others[0], f"--{others[0].replace('_', '-')}")
        raise UsageError(f"{option} cannot be used with --resume: a resumed run keeps the settings in its run.json")
    if "retry_failed" in given and "resume" not in given:
        raise UsageError("--retry-failed goes with --resume FOLDER")


def _check_ray_options(context: typer.Context) -> None:
    """UsageError for an option that means nothing on a cluster, or nothing without one."""
    if context.params["ray"] is None and context.params["each_device"]:
        raise UsageError("--each-device goes with --ray ADDRESS")
    for name in ("static", "dry_run", "in_process"):
        if context.params["ray"] is not None and context.params[name]:
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --ray: it needs no cluster")


def _reporter() -> "Quiet":
    from ctxbench.progress import Live, Plain

    return Live() if sys.stderr.isatty() else Plain()


def _gate_progress() -> "QuietGate":
    from ctxbench.progress import LiveGate, PlainGate

    return LiveGate() if sys.stderr.isatty() else PlainGate()


def _print(renderable: Any) -> None:
    from rich.console import Console
    from rich.text import Text

    # what is piped into a file or another program is not cut to 80 columns
    width = None if sys.stdout.isatty() else 200
    text = Text(renderable) if isinstance(renderable, str) else renderable  # a plain str would be read as markup
    Console(width=width, soft_wrap=isinstance(text, Text)).print(text)


def _print_table(path: Path) -> None:
    from ctxbench.report import crossover, predicted, runs, tables, terminal
    from ctxbench.results import RunFolder

    folder = RunFolder.open(path)
    _print(terminal.render_terminal(tables.comparison_table([folder])))
    read = runs.RunData.read(folder)
    made = (crossover.crossover_table, predicted.predicted_crossover_table, predicted.predicted_table)
    for table in (make(read) for make in made):
        if table:
            print()
            _print(terminal.render_terminal(table))
    print(f"run folder: {path}")


def _print_interrupted(stop: KeyboardInterrupt, options: str = "") -> None:
    from ctxbench.api import Interrupted

    if not isinstance(stop, Interrupted):
        print("interrupted before anything was measured", file=sys.stderr)
        return
    print(f"interrupted; {stop.done} of {stop.total} processes are in {stop.path}", file=sys.stderr)
    print(f"continue with: ctxbench run --resume {stop.path}{options}", file=sys.stderr)


def _print_ranking(ranking: "Ranking", rank_by: str) -> None:
    from ctxbench.ranking import sentences
    from ctxbench.report.ranking import ranking_table
    from ctxbench.report.terminal import render_terminal

    _print(render_terminal(ranking_table(ranking, rank_by)))
    for text in sentences(ranking.standings):
        print(text)
