"""The command line: parse, call one function, print."""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxbench.errors import UsageError

if TYPE_CHECKING:
    from ctxbench.api import Interrupted
    from ctxbench.progress import Quiet, QuietGate
    from ctxbench.ranking import Ranking

app = typer.Typer(
    name="ctxbench",
    help="Benchmark global-context modules: parameters, MACs, memory and latency of blocks that map [B, C, H, W] to "
    "[B, C', H, W].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
EXIT_FAILED_CASES = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130

Shape = Annotated[
    list[str] | None, typer.Option("--shape", metavar="B,C,H,W", help="Input shape; may be given several times.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="MODULE.NAME=VALUE", help="Set a hyper-parameter, such as ham_nmf.steps=3."),
]

OwnSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a hyper-parameter of the module, such as rank=16."),
]


def main() -> None:
    """Entry point: a wrong input is one sentence on standard error and exit code 2.

    A defect of ctxbench itself has an exit code of its own, so that it does not pass for a verdict.
    """
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


@app.command()
def run(
    suite: Annotated[
        str, typer.Option(help="A suite's name, or the path of a TOML file.", autocompletion=complete_suite)
    ] = "table3",
    modules: Annotated[
        str | None, typer.Option(help="Comma-separated: keys, path.py:Class or package.module:Class.")
    ] = None,
    shape: Shape = None,
    dtype: Annotated[str | None, typer.Option(help="Comma-separated dtypes, such as float32,bfloat16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    memory_format: Annotated[str | None, typer.Option(help="contiguous or channels_last, comma-separated.")] = None,
    execution: Annotated[str | None, typer.Option(help="eager or compile, comma-separated.")] = None,
    threads: Annotated[str | None, typer.Option(help="CPU threads, comma-separated.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Comma-separated: params, macs, memory, latency, energy.")] = None,
    settings: Settings = None,
    budget: Annotated[float | None, typer.Option(help="Seconds of measuring for each case and mode.")] = None,
    target: Annotated[float | None, typer.Option(help="Stop when the median is known to this share of itself.")] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Params, MACs and predicted memory only: no clock, no data.")
    ] = False,
    counter: Annotated[str, typer.Option(help="Who counts MACs: ctxbench or torchprofile.")] = "ctxbench",
    out: Annotated[Path | None, typer.Option(help="The run folder; default results/<suite>-<time>.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this interrupted run.")] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: measure failed cases again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cases with estimated time and memory; measure nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Measure cases that are predicted not to fit into memory.")
    ] = False,
    in_process: Annotated[bool, typer.Option("--in-process", help="Measure in this process, for debugging.")] = False,
) -> None:
    """Measure a suite: params, MACs, memory and latency of each case; a run folder and a table come out."""
    from ctxbench import api, describe
    from ctxbench.suite import Overrides, load, parse_shape

    try:
        if resume is not None:
            finished = api.resume(resume, retry_failed=retry_failed, in_process=in_process, reporter=_reporter())
        else:
            overrides = Overrides(
                modules=_split(modules),
                shape=[parse_shape(text) for text in shape] if shape else None,
                dtype=_split(dtype),
                device=_split(device),
                memory_format=_split(memory_format),
                execution=_split(execution),
                threads=_numbers(threads),
                metrics=_split(metrics),
                hparams=_settings(settings),
                measure={k: v for k, v in {"budget_s": budget, "target": target}.items() if v is not None},
            )
            loaded = load(suite, overrides)
            if dry_run:
                _print(describe.plan(api.plan(loaded, static=static)))
                return
            finished = api.run_suite(
                loaded,
                static=static,
                counter=counter,
                out=out,
                force=force,
                in_process=in_process,
                reporter=_reporter(),
            )
    except api.Interrupted as stop:
        _print_interrupted(stop)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_table(finished.path)
    if finished.failed:
        raise typer.Exit(EXIT_FAILED_CASES)


@app.command("list")
def list_modules() -> None:
    """List the registered modules."""
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
    settings: Settings = None,
) -> None:
    """Describe a module: source, hyper-parameters, closed forms; with --shape its params and MACs."""
    from ctxbench import describe, registry
    from ctxbench.suite import parse_shape

    entry = registry.get(module)
    hparams = _settings(settings).get(module, {})
    for text in describe.module(entry):
        _print(text)
    for each in shape or []:
        _print(describe.costs(entry, parse_shape(each), entry.check_hparams(hparams)))


@app.command()
def verify(
    module: Annotated[
        str,
        typer.Argument(
            help="path.py:Class, package.module:Class or a key. Its code is run.", autocompletion=complete_module
        ),
    ],
    settings: OwnSettings = None,
    channels: Annotated[int, typer.Option(min=1, help="Channels of the inputs.")] = 64,
    size: Annotated[tuple[int, int], typer.Option(metavar="H W", help="Height and width of the usual input.")] = (
        11,
        9,
    ),
    timeout: Annotated[float, typer.Option(help="Seconds after which a hanging module is ended.")] = 180.0,
) -> None:
    """Check that a module honours the contract of context modules; a line a check, with a hint where one fails."""
    from ctxbench import contract
    from ctxbench.contract import lines
    from ctxbench.engine.client import Zygote

    with Zygote() as zygote:
        results = contract.verify(
            module,
            zygote,
            channels=channels,
            hparams=_own_settings(settings),
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
        list[str], typer.Argument(help="path.py:Class, package.module:Class or keys. Their code is run.")
    ],
    against: Annotated[str | None, typer.Option(help="Comma-separated keys of registry modules; default all.")] = None,
    suite: Annotated[
        str, typer.Option(help="A suite's name or file, for inputs and settings.", autocompletion=complete_suite)
    ] = "compare",
    shape: Shape = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="[MODULE.]NAME=VALUE", help="A hyper-parameter of the candidates, or of the module named."
        ),
    ] = None,
    rank_by: Annotated[
        str, typer.Option(help="params, macs, memory_infer, memory_train, latency_infer or latency_train.")
    ] = "latency_infer",
    reuse: Annotated[Path | None, typer.Option(help="Take the registry's rows from this earlier run.")] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Measure what does not honour the contract, too.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run folder; default results/compare-<time>.")] = None,
) -> None:
    """Verify candidates, measure them beside the registry's modules, and say where they stand."""
    from ctxbench import api
    from ctxbench import compare as comparing
    from ctxbench.contract import lines
    from ctxbench.engine.client import Zygote
    from ctxbench.suite import parse_shape

    request = comparing.Request(candidates, _split(against), _candidate_settings(settings))
    comparing.check_names(request, suite, rank_by)
    with Zygote() as zygote:
        environment = api.machine(zygote)
        broken = False
        for candidate in candidates:
            results = comparing.check_contract(request, candidate, zygote)
            for result in results:
                if result.outcome == "failed":
                    _print(lines.line(result))
            _print(lines.summary(candidate, results))
            broken |= any(result.broken for result in results)
    if broken and not anyway:
        print("not measured; mend the module, or measure it all the same with --anyway", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED_CASES)
    shapes = [parse_shape(text) for text in shape] if shape else None
    try:
        finished = comparing.measure(
            request, environment, suite=suite, shape=shapes, reuse=reuse, out=out, reporter=_reporter()
        )
    except api.Interrupted as stop:
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
    class_name: Annotated[str | None, typer.Option("--class", help="The class's name; default: the file's.")] = None,
) -> None:
    """Write a small working module to start from."""
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
    device: Annotated[str, typer.Option(help="cuda, cuda-2020 or cpu: what the prediction is for.")] = "cuda",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    settings: Settings = None,
    plot: Annotated[Path | None, typer.Option(help="Draw live bytes over the pass into this .png or .svg.")] = None,
) -> None:
    """Predict a module's peak memory without a device, and say what is alive there and what would lower it."""
    from ctxbench import describe, registry
    from ctxbench.suite import parse_shape

    entry = registry.get(module)
    hparams = entry.check_hparams(_settings(settings).get(module, {}))
    for part in describe.memory(entry, parse_shape(shape), hparams, mode, device, dtype, plot):
        _print(part)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are compared.")],
    out: Annotated[Path, typer.Option(help="Where to write the page, tables and figures.")] = Path("ctxbench-report"),
    figures: Annotated[str | None, typer.Option(help="Comma-separated figures; default: all that have data.")] = None,
) -> None:
    """Write tables, figures and a page from stored runs; nothing is measured."""
    from ctxbench.report import write_report

    written = write_report(runs, out, _split(figures))
    print(f"{len(written.files)} files; open {written.page}")


@app.command()
def check(
    against: Annotated[str | None, typer.Option(metavar="GIT_REF", help="The commit to compare with.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A run folder, a records.csv or a pytest-benchmark JSON to compare with.")
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="The working tree against itself: what can this machine see?")
    ] = False,
    inject: Annotated[
        str | None, typer.Option(metavar="SHARE", help="With --self-test: slow every other row, such as 10%.")
    ] = None,
    suite: Annotated[str, typer.Option(help="A suite's name or file.", autocompletion=complete_suite)] = "ci",
    modules: Annotated[
        list[str] | None,
        typer.Option("--modules", "--module", help="Keys, path.py:Class, package.module:Class; comma or repeated."),
    ] = None,
    margin: Annotated[str | None, typer.Option(help="The change that matters; default: the suite's, 5%.")] = None,
    budget: Annotated[str, typer.Option(help="Time for the whole check, such as 90s or 10m.")] = "5m",
    inconclusive_is: Annotated[
        str, typer.Option(help="Whether rows without an answer fail the check: fail (exit code 3) or ok.")
    ] = "fail",
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the whole finding here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary in Markdown here.")] = None,
) -> None:
    """Has a module become slower, larger or broken? Three answers: ok, regressed, inconclusive.

    Exit codes: 0 ok, 1 regressed, 2 usage, 3 inconclusive, 4 newly broken or missing, 5 nothing compared.
    """
    from rich.console import Console

    from ctxbench.gate import outputs, request, terminal
    from ctxbench.gate.check import check_against
    from ctxbench.gate.check_stored import check_stored
    from ctxbench.gate.self_test import self_test as test_itself
    from ctxbench.suite import Overrides, load

    if sum([against is not None, baseline is not None, self_test]) != 1:
        raise UsageError("check takes one of --against GIT_REF, --baseline PATH and --self-test")
    if inject is not None and not self_test:
        raise UsageError("--inject goes with --self-test: it slows rows on purpose, to see whether they are found")
    chosen = [name for text in modules for name in _split(text) or []] if modules else None
    asked = request.Request(
        load(suite, Overrides(modules=chosen)),
        request.parse_share(margin, "--margin") if margin is not None else None,
        request.parse_seconds(budget, "--budget"),
        request.parse_inconclusive_is(inconclusive_is),
    )
    console = Console()
    tested = None
    environ = dict(os.environ)
    try:
        if self_test:
            tested = test_itself(
                asked, request.parse_share(inject, "--inject") if inject is not None else 0.0, _gate_progress()
            )
            finding, environ = tested.finding, {}  # what is injected is no news for a job's summary
        elif baseline is not None:
            finding = check_stored(baseline, asked, _gate_progress())
        else:
            finding = check_against(str(against), asked, _gate_progress())
    except KeyboardInterrupt:
        print("interrupted: no verdict, and nothing is left behind", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    outputs.emit(finding, console, junit, json_path, markdown, environ, tested)
    if tested is not None:
        console.print(terminal.self_test_table(tested))
    raise typer.Exit(finding.exit_code)


@app.command()
def env() -> None:
    """Print the environment that a run would record."""
    from ctxbench import environment

    print(json.dumps(environment.describe(), indent=2))


def _split(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text is not None else None


def _numbers(text: str | None) -> list[int] | None:
    try:
        return [int(part) for part in _split(text) or []] or None
    except ValueError:
        raise UsageError(f"--threads {text!r} is not a comma-separated list of integers") from None


def _settings(texts: list[str] | None) -> dict[str, dict[str, Any]]:
    from ctxbench.suite import parse_setting

    chosen: dict[str, dict[str, Any]] = {}
    for text in texts or []:
        module, name, value = parse_setting(text)
        chosen.setdefault(module, {})[name] = value
    return chosen


def _own_settings(texts: list[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` settings of the one module that a command is about."""
    from ctxbench.suite import parse_setting

    for text in texts or []:
        if "=" not in text:
            raise UsageError(f"--set {text!r} is not name=value, such as rank=16")
    return {name: value for _, name, value in (parse_setting(f"module.{text}") for text in texts or [])}


def _candidate_settings(texts: list[str] | None) -> dict[str, dict[str, Any]]:
    """Settings by module, those without a module under the empty name."""
    named = [text for text in texts or [] if "." in text.partition("=")[0]]
    own = _own_settings([text for text in texts or [] if text not in named])
    return {**_settings(named), **({"": own} if own else {})}


def _reporter() -> "Quiet":
    from ctxbench.progress import Live, Plain

    return Live() if sys.stderr.isatty() else Plain()


def _gate_progress() -> "QuietGate":
    from ctxbench.progress import LiveGate, PlainGate

    return LiveGate() if sys.stderr.isatty() else PlainGate()


def _print(renderable: Any) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(soft_wrap=isinstance(renderable, str | Text)).print(renderable)


def _print_table(path: Path) -> None:
    from ctxbench.report import tables, terminal
    from ctxbench.results import RunFolder

    _print(terminal.render_terminal(tables.comparison_table([RunFolder.open(path)])))
    print(f"run folder: {path}")


def _print_interrupted(stop: "Interrupted") -> None:
    print(f"interrupted; {stop.done} of {stop.total} cases are in {stop.path}", file=sys.stderr)
    print(f"continue with: ctxbench run --resume {stop.path}", file=sys.stderr)


def _print_ranking(ranking: "Ranking", rank_by: str) -> None:
    from ctxbench.ranking import sentences
    from ctxbench.report.ranking import ranking_table
    from ctxbench.report.terminal import render_terminal

    _print(render_terminal(ranking_table(ranking, rank_by)))
    for text in sentences(ranking.standings):
        print(text)
