"""The command line: exit codes, sentences, what is printed, and what is not imported."""

import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from conftest import Done, Shared

import ctxbench
from ctxbench import cli, registry
from ctxbench.base.extras import packages_of
from ctxbench.base.number import Number
from ctxbench.base.texts import listed
from ctxbench.model.metrics import metrics

SuiteFile = Callable[..., Path]
Command = Callable[..., Done]


@pytest.mark.processes
def test_numpy_starts_no_thread_in_a_command() -> None:
    """Guard against OpenBLAS, which raises the signal of Ctrl-C where there is no thread left."""
    code = (
        "import os, sys\nfrom ctxbench import cli\nsys.argv = ['ctxbench', 'list']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "import numpy\nassert len(os.listdir('/proc/self/task')) == 1\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=environment)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--modules", "ham_nfm"], "unknown module 'ham_nfm'; did you mean 'ham_nmf'?"),
        (["run", "--suite", "tabel3"], "unknown suite 'tabel3'; did you mean 'table3'?"),
        (["run", "--metrics", "latenc"], "metrics 'latenc': unknown metric"),
        (["run", "--dtype", "int8"], "dtype 'int8': input should be 'float32'"),
        (["run", "--device", "tpu"], "unknown device 'tpu'"),
        (["run", "--shape", "1,2,3"], "has 3 numbers"),
        (["run", "--shape", "1,2,3,0"], "at least 1"),
        (["run", "--shape", "1,2,3,-4"], "at least 1"),
        (["run", "--shape", "big"], "not four integers"),
        (["run", "--set", "ham_nmf.step=3"], "did you mean 'steps'?"),
        (["run", "--set", "nonsense"], "is not [module.]hyperparameter=value"),
        (["run", "--modules", "sa", "--set", "ham_nmf.steps=3"], "no module of this run has it (sa)"),
        (["show", "ham_nmf", "--shape", "1,8,8,8", "--set", "sa.nonsense=3"], "is about ham_nmf, not sa"),
        (["show", "ham_nmf", "--set", "steps=3"], "--set goes with --shape"),
        (["show", "ham_nmf", "--memory-format", "channels_last"], "--memory-format goes with --shape"),
        (["memory", "sa", "--set", "ham_nmf.steps=3"], "this command is about sa, not ham_nmf"),
        (["verify", "sa", "--set", "ham_nmf.steps=3"], "this command is about sa, not ham_nmf"),
        (["run", "--static", "--for", "titanxp"], "unknown device 'titanxp'; did you mean 'titan-xp'?"),
        (["run", "--static", "--for", "T4"], "unknown device 'T4'; did you mean 't4'?"),
        (["predict", "sa", "--for", "a100"], "unknown device 'a100'; did you mean 'a100-40gb' or 'a100-80gb' or"),
        (["predict", "sa", "--for", "none.toml"], "there is no file none.toml"),
        (["predict", "sa", "--for", "t4", "--mode", "both"], "unknown mode 'both'"),
        (["predict", "sa", "--for", "t4", "--mode", "train", "--loss", "mse"], "unknown loss 'mse'"),
        (["predict", "sa", "--for", "t4", "--mode", "train", "--optimizer", "adam"], "did you mean 'adamw'"),
        (
            ["predict", "sa", "--for", "t4", "--mode", "infer", "--optimizer", "sgd"],
            "--loss and --optimizer are of a training step",
        ),
        (["predict", "sa", "--for", "t4", "--dtype", "int8"], "unknown dtype 'int8'"),
        (["predict", "sa", "--for", "t4", "--dtype", "bfloat16"], "Tesla T4 has no unit for bfloat16"),
        (["run", "--counter", "fvcore"], "unknown counter 'fvcore'"),
        (["run", "--threads", "two"], "--threads 'two'"),
        (["resume", "/no/such/folder"], "is no run folder"),
        (["run", "--out", "/proc/ctxbench", "--static"], "cannot write to /proc/ctxbench"),
        (["memory", "sa", "--mode", "both"], "unknown mode 'both'"),
        (["memory", "sa", "--for", "tpu"], "unknown device 'tpu'"),
        (["memory", "sa", "--for", "a100"], "unknown device 'a100'; did you mean 'a100-40gb'"),
        (["memory", "sa", "--dtype", "int8"], "unknown dtype 'int8'"),
        (["memory", "sa", "--network", "resnet99"], "unknown network 'resnet99'; did you mean 'resnet50_d8'?"),
        (["check", "--self-test", "--memory-format", "nchw"], "memory_format 'nchw': input should be 'contiguous'"),
        (["check", "--self-test", "--network", "resnet99"], "unknown network 'resnet99'"),
        (["compare", "sa", "--memory-format", "nchw"], "memory_format 'nchw': input should be 'contiguous'"),
        (
            ["memory", "sa", "--shape", "1,8,8,8", "--plot", "/no/such/folder/x.png"],
            "cannot write to /no/such/folder/x.png",
        ),
        (["report", "/no/such/run"], "no run folder"),
        (["run", "--out", ""], "--out is empty"),
        (["run", "--metrics", ""], "--metrics is empty"),
        (["run", "--static", "--metrics", "latency"], "--static measures params, macs, memory"),
        (["run", "--threads", ","], "--threads ',' is not a comma-separated list"),
        (["report", ""], "RUNS is empty"),
        (["run", "--threads", "10000000"], "threads 10000000: it must be from 1 to 1,024"),
        (["run", "--threads", "१"], "--threads '१' is not a comma-separated list of integers"),
        (["run", "--shape", "99999999999999999999,32,8,8"], "the product of B,C,H,W is too large"),
        (
            ["run", "--processes", "99999999999999999999"],
            "--processes 99999999999999999999: it must be from 1 to 1,000",
        ),
        (["run", "--processes", "1_0"], "--processes '1_0' is not a number in the digits 0 to 9"),
        (["run", "--sample-time", "inf"], "--sample-time inf: it must be more than 0 and at most 604,800"),
        (["run", "--target", "१.5"], "--target '१.5' is not a number in the digits 0 to 9"),
        (["run", "--budget", "99999999h"], "--budget 3.6e+11: it must be more than 0"),
        (["run", "--budget", "१m"], "--budget '१m' is not a time"),
        (["run", "--set", "steps=" + "[" * 5000], "is nested too deeply"),
        (["run", "--suite", "/dev/null"], "cannot read /dev/null: it is no regular file"),
        (["predict", "sa", "--for", "/dev/null/x.toml"], "cannot read /dev/null/x.toml: Not a directory"),
        (["resume", "/dev/null"], "cannot read /dev/null/run.json: Not a directory"),
        (["verify", "se", "--timeout", "inf"], "--timeout inf: it must be more than 0 and at most 604,800 seconds"),
        (["verify", "se", "--channels", "99999999999999"], "the product of B,C,H,W is too large"),
        (["check", "--self-test", "--margin", "५%"], "--margin '५%' is not a positive share"),
        (["check", "--self-test", "--inject", "1e9"], "--inject 1e+09: it must be more than 0 and less than 10"),
        (["check", "--self-test", "--renamed", "A=B"], "--renamed goes with --against"),
        (["check", "--self-test", "--json", "/dev/null"], "cannot write to /dev/null: it is no regular file"),
        (["calibrate", "--out", "/no/such/folder/x.toml"], "cannot write to /no/such/folder/x.toml"),
        (["calibrate", "--out", "x.toml", "--device", "zz"], "unknown device 'zz'"),
        (["calibrate", "--out", "x.toml", "--threads", "1025"], "--threads 1025: it must be from 1 to 1,024"),
        (["compare", "se", "--reuse", "/no/such/run"], "/no/such/run is no run folder"),
        (["memory", "se", "--plot", "x.gif"], "--plot x.gif: the name of a drawing ends in .png or .svg"),
        (["new", "x.py", "--class", "class"], "'class' is not a valid name for a class"),
        (["new", "x.py", "--class", "nn"], "'nn' is not a valid name for a class"),
        (["show", "nothing"], "unknown module 'nothing'"),
        (["show", "none.py:Class"], "there is no file"),
        (["show", "json:JSONDecoder"], "no subclass of torch.nn.Module"),
        (["show", "sa", "--shape", "1,2,3,4", "--set", "sa.width=3"], "unknown hyper-parameter of 'sa' 'width'"),
    ],
)
@pytest.mark.processes
def test_a_wrong_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert not [*tmp_path.iterdir()]
    assert done.stderr.startswith("ctxbench: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_the_line_of_each_command_is_the_first_of_its_own_help() -> None:
    for declared, load in cli.known_commands().values():
        assert " ".join(str(load().__doc__).split("\n\n")[0].split()) == declared.line


@cache
def known_options() -> set[str]:
    """The options of all commands: what a help may name."""
    params = [each for name in cli.known_commands() for each in cli.imported(name).params]
    return {"--help", *(option for each in params for option in (*each.opts, *each.secondary_opts))}


@pytest.mark.parametrize("name", cli.known_commands())
def test_a_help_has_the_arguments_first_each_option_once_and_no_words_of_python(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = cli.imported(name)
    with pytest.raises(SystemExit):
        command(["--help"], prog_name=name)
    shown = capsys.readouterr().out
    assert not re.search(r" <|\{|list\[", shown)
    assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", shown)) <= known_options()
    values = [each for each in command.params if each.param_type_name == "argument"]
    sections = re.findall(r"^(\w[\w ]*):$", shown, re.M)
    assert (sections[0] == "Arguments") == bool(values)
    shown = shown[shown.index(f"\n{sections[0]}:") :]
    for each in command.params:
        written = re.findall(rf"^  {re.escape(each.metavar if each in values else each.opts[0])}[ ,\n]", shown, re.M)
        assert len(written) == 1, each.name


@pytest.mark.parametrize(
    ("name", "section", "option"),
    [
        pytest.param("check", "Compared with", "--against", marks=pytest.mark.plugin("check")),
        pytest.param("check", "What", "--shape", marks=pytest.mark.plugin("check")),
        pytest.param("compare", "What", "--at", marks=pytest.mark.plugin("compare")),
    ],
)
def test_options_of_one_kind_stand_together(
    name: str, section: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.imported(name)(["--help"], prog_name=name)
    sections = re.split(r"^(\w[\w ]*):$", capsys.readouterr().out, flags=re.M)
    assert f"\n  {option} " in sections[sections.index(section) + 1]


@pytest.mark.parametrize("name", ["run", pytest.param("compare", marks=pytest.mark.plugin("compare"))])
def test_the_help_lists_the_metrics(name: str) -> None:
    (option,) = [each for each in cli.imported(name).params if each.name == "metrics"]
    wanted = ", ".join(each for each, metric in metrics().items() if metric.asked_for)
    assert option.help.endswith(f": {wanted}.")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "who", "extra"),
    [
        (["run", "--network", "resnet50_d8"], "network resnet50_d8", "networks"),
        (["run", "--suite", "networks", "--static"], "network resnet50_d8", "networks"),
        (["run", "--suite", "networks", "--dry-run"], "network resnet50_d8", "networks"),
        (["memory", "sa", "--network", "vit_small"], "network vit_small", "networks"),
        (
            ["choose", "--memory", "2GiB", "--shape", "1,3,224,224", "--device", "t4", "--network", "vit_small"],
            "network vit_small",
            "networks",
        ),
        (["compare", "sa", "--execution", "eager,onnxruntime,openvino"], "onnxruntime", "onnx"),
        (["run", "--suite", "deploy"], 'pip install -c constraints.txt ".[onnx]"; openvino', "openvino"),
    ],
)
def test_a_command_that_needs_an_extra_refuses_before_a_process_is_started(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], who: str, extra: str
) -> None:
    monkeypatch.setattr("ctxbench.base.extras.find_spec", lambda name: None)
    monkeypatch.setattr(Shared, "server", None)
    monkeypatch.setattr(Shared, "of_tree", lambda *_: pytest.fail("started"))
    done = command(*arguments)
    assert done.returncode == 2
    needed = listed(packages_of(extra))
    assert f'{who} needs {needed}: in the clone, pip install -c constraints.txt ".[{extra}]"' in " ".join(
        done.stderr.split()
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "sa", "--metrics", "taste,latency"],
        ["run", "--suite", "taste"],
        ["taste-run", "local"],
        pytest.param(["verify", "sa", "--deep"], marks=pytest.mark.plugin("verify")),
    ],
)
def test_a_command_without_ctxbench_science_says_how_to_get_it(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("ctxbench.base.extras.SCIENCE", "not_installed")
    left = {name: each for name, each in metrics().items() if name not in ("recall", "stability")}
    monkeypatch.setattr("ctxbench.model.metrics.metrics", lambda: left)
    done = command(*arguments)
    assert done.returncode == 2
    assert "come with ctxbench-science: in the clone, pip install -c constraints.txt ./science" in " ".join(
        done.stderr.split()
    )


@pytest.mark.processes
def test_cuda_is_refused_where_there_is_none(command: Command) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = command("run", "--device", "cuda")
    why = f"torch was built with CUDA {torch.version.cuda}" if torch.version.cuda else "torch sees no GPU here"
    assert (done.returncode, why in done.stderr) == (2, True)


def test_list_names_every_module(command: Command) -> None:
    printed = command("list").stdout
    for key in registry.names():
        assert f"\n  {key} " in printed


@pytest.mark.processes
def test_env_prints_the_environment(command: Command) -> None:
    found = json.loads(command("env").stdout)
    assert found["packages"]["torch"]
    assert found["python"] == sys.version.split()[0]


@pytest.mark.processes
def test_a_run_without_a_terminal_prints_plain_lines(suite_file: SuiteFile, tmp_path: Path, command: Command) -> None:
    done = command("run", "--suite", suite_file(["sa"]), "--out", tmp_path / "run")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines[0] == "sa 1x8x6x5 float32 cpu: Params 288"
    assert re.fullmatch(r"round 1 of fresh processes; about \d+ s left", lines[1])
    assert re.fullmatch(
        r"sa 1x8x6x5 float32 cpu: infer \S+ ms, train \S+ ms, \d process(es)?, done in \S+ s", lines[-1]
    )
    assert "\x1b" not in done.stderr
    assert f"run folder: {tmp_path / 'run'}" in " ".join(done.stdout.split())


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "processes", "note"),
    [
        (
            ["--processes", 1],
            1,
            "note: the suite's budget of 400 s does not count with --processes 1; --budget sets one",
        ),
        (["--processes", 1, "--budget", "5m"], 3, ""),
        ([], 3, ""),
    ],
)
def test_the_number_of_processes_that_is_said_is_that_of_the_run(
    suite_file: SuiteFile, tmp_path: Path, command: Command, options: list[object], processes: int, note: str
) -> None:
    suite = suite_file(["sa"], measure="total_s = 400")  # for an interval, which one process does not have
    done = command("run", "--suite", suite, *options, "--out", tmp_path / "run")
    assert done.returncode == 0
    assert ctxbench.load(tmp_path / "run").frame["processes"].tolist() == [processes]
    assert [line for line in done.stderr.splitlines() if line.startswith("note: ")] == [note] * bool(note)


@pytest.mark.processes
def test_a_failed_case_gives_exit_code_1(suite_file: SuiteFile, tmp_path: Path, command: Command) -> None:
    failing = Path(__file__).parent / "fixtures" / "failing.py"
    done = command("run", "--suite", suite_file([f"{failing}:Raise"]), "--out", tmp_path / "run")
    assert done.returncode == 1
    assert "the user's own words" in " ".join(done.stdout.split())


@pytest.mark.processes
def test_dry_run_lists_the_cases_and_writes_nothing(tmp_path: Path, command: Command) -> None:
    done = command("run", "--dry-run", "--modules", "ham_nmf,sa", "--out", tmp_path / "run")
    assert done.returncode == 0
    assert "sa 1x512x128x128 float32 cpu" in done.stdout
    assert "5,253 MiB" in done.stdout
    assert "2 cases" in done.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.processes
def test_memory_explains_the_peak_and_draws_it(tmp_path: Path, command: Command) -> None:
    done = command("memory", "ham_nmf", "--plot", tmp_path / "peak.svg")
    assert done.returncode == 0
    assert "train: predicted peak on cuda 202.14 MiB" in " ".join(done.stdout.split())
    assert "native_batch_norm_backward" in done.stdout
    heads = next(line for line in done.stdout.splitlines() if "what would lower the peak" in line)
    assert heads.split()[:4] == ["peak", "then", "(MiB)", "saves"]
    lower = [line.split() for line in done.stdout.partition(heads)[2].splitlines()[2:] if line[:1] == " "]
    assert lower
    assert all(round(float(peak) + float(saved), 2) == pytest.approx(202.14, abs=0.02) for peak, saved, *_ in lower)
    assert (tmp_path / "peak.svg").stat().st_size > 1000


@pytest.mark.processes
def test_other_commands_say_of_a_dtype_and_a_layout_what_a_static_run_says(tmp_path: Path, command: Command) -> None:
    computed_in = "autocast-float16 channels_last"
    dtype, layout = ("--dtype", "autocast-float16"), ("--memory-format", "channels_last")
    asked = (*dtype, *layout, "--shape", "4,512,128,128")  # so large that the kernels decide
    device = ("--device", "t4")
    assert command("run", "--static", "--modules", "ppm", *asked, *device, "--out", tmp_path / "run").returncode == 0
    (row,) = ctxbench.load(tmp_path / "run").frame.to_dict("records")
    text = " ".join(command("memory", "ppm", *asked).stdout.split())
    peak = f"{row['memory_train_predicted_bytes'] / 2**20:,.2f}"
    assert f"{computed_in}, train: predicted peak on cuda {peak} MiB" in text
    text = " ".join(command("predict", "ppm", "--for", "t4", "--mode", "infer", *asked).stdout.split())
    time = Number(*(row[f"latency_infer_{end}"] for end in ("ms", "low_ms", "high_ms"))).text()
    assert f"{computed_in}, infer: predicted for Tesla T4, not measured: {time} ms" in text
    text = " ".join(command("show", "ppm", *asked).stdout.replace("─", "").split())
    assert f"4x512x128x128 {computed_in} counted closed form params {row['params']:,}" in text


@pytest.mark.processes
def test_report_writes_a_page_from_a_run(suite_file: SuiteFile, tmp_path: Path, command: Command) -> None:
    assert command("run", "--suite", suite_file(["sa"]), "--static", "--out", tmp_path / "run").returncode == 0
    reported = command("report", tmp_path / "run", "--out", tmp_path / "report")
    page = tmp_path / "report" / "index.html"
    assert reported.stdout.endswith(f"open {page}, or send it: that file alone is the whole page\n")
    text = page.read_text(encoding="utf-8")
    assert "<table" in text
    links = re.findall(r"(?:href|src)=[\"']?([^\s\"'>]+)", text)
    assert [link for link in links if not re.match("#|data:|https?:", link)] == []


def test_a_defect_of_our_own_does_not_pass_for_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 70
    assert "RuntimeError: a defect" in capsys.readouterr().err


def test_the_version_is_printed(command: Command) -> None:
    assert command("--version").stdout == f"ctxbench {importlib.metadata.version('ctxbench')}\n"
