"""The command `compare` and its function: candidates are verified, measured and ranked."""

import functools
import importlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from typer.testing import CliRunner, Result

import ctxbench
from ctxbench import cli, registry
from ctxbench.base import disk
from ctxbench.base.errors import UsageError
from ctxbench.meta.gradient_order import WAY_OUT
from ctxbench.model.grid import Suite
from ctxbench.model.read_suite import Overrides, load
from ctxbench.plugins.compare import comparison, function
from ctxbench.plugins.verify.checks import CHECKS, run_checks
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import Subject
from ctxbench.results.run_folder import RunFolder

CANDIDATES = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, channels: int, *, width: int = 2):
        super().__init__()
        self.narrow = nn.Conv2d(channels, width, 1)
        self.widen = nn.Conv2d(width, channels, 1)
    def forward(self, x):
        return x + self.widen(self.narrow(x).mean((2, 3), keepdim=True).relu())

class Local(nn.Module):
    def __init__(self, channels: int, kernel: int = 3):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.spare = nn.Parameter(torch.zeros(channels))
    def forward(self, x):
        return self.conv(x)

class Wrong(Local):
    def forward(self, x):
        return super().forward(x) + x.mean(0)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_module.py"
    path.write_text(CANDIDATES, encoding="utf-8")
    return path


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_compare_measures_a_candidate_with_undecided_checks_and_names_them(
    file: Path, tmp_path: Path, suite_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = CheckResult("1x1", "not decided", "still running after 60 s of processor time", "it was stopped")
    monkeypatch.setattr("ctxbench.plugins.compare.comparison.verify", lambda *arguments, **options: [stopped])
    suite = suite_file(["sa"], metrics=("params",))
    found = invoke("compare", f"{file}:Mine", "--suite", suite, "--modules", "sa", "--out", tmp_path / "run")
    assert found.exit_code == 0, found.output
    assert re.search(r"^undecided 1x1 +still running after 60 s of processor time$", found.output, re.MULTILINE)
    assert "it is not decided whether Mine meets the contract: 1 undecided" in found.output
    assert list(RunFolder.open(tmp_path / "run").frame()["module"]) == ["Mine", "sa"]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_compare_measures_ranks_and_tells_and_its_rows_can_be_reused(
    file: Path, tmp_path: Path, suite_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = suite_file(["sa"], metrics=("params", "macs", "memory", "latency"), processes=3)
    options = ["--suite", suite, "--modules", "sa,linear", "--set", "linear.reduction=4", "--set", "Mine.width=3"]
    first = invoke("compare", f"{file}:Mine", f"{file}:Local", *options, "--anyway", "--out", tmp_path / "one")
    assert first.exit_code == 0, first.output
    assert re.search(r"Mine meets the contract: \d+ passed, 1 note", first.output)
    assert re.findall(r"^ *\d+ s  verifying (.*)", first.stderr, re.MULTILINE) == ["Mine", "Local"]
    assert re.search(r"^FAILED +gradients +no gradient reaches spare$", first.output, re.MULTILINE)
    assert "Local does not meet the contract" in first.output
    assert re.search(r"^\d +> Local \[local: 3 x 3; fails: gradients\] ", first.output, re.MULTILINE)
    assert "Local [" not in first.output.partition("On the Pareto front")[2]
    assert re.search(r"On the Pareto front.*: .*Mine \(width=3\)", first.output)
    assert re.search(r"^Mine \(width=3\).* sa\b", first.output, re.MULTILINE)
    one = RunFolder.open(tmp_path / "one")
    frame = one.frame()
    assert {"local: 3 x 3", "fails: gradients"} <= set(map(str, frame["notes"].iloc[1]))
    assert list(frame["module"]) == ["Mine", "Local", "sa", "linear"]
    assert list(frame["changed"]) == ["width", "", "", "reduction"]
    assert json.loads(frame["hparams"].iloc[0])["width"] == 3
    assert frame["params"].iloc[0] == 8 * 3 + 3 + 3 * 8 + 8

    settings = {"": {"width": 4}, "linear": {"reduction": 4}}
    plan = comparison.ComparisonPlan(load(str(suite)), [f"{file}:Mine"], ["sa", "linear"], settings)
    now = one.meta["environment"]
    run = comparison.measure(plan, now, reuse=tmp_path / "one", out=tmp_path / "two")
    second, held = run.frame().set_index("module"), frame.set_index("module")
    for column in ("params", "processes", "latency_infer_ms", "latency_infer_low_ms", "rounds"):
        assert second.loc["sa", column] == held.loc["sa", column]
    assert f"reused from {tmp_path / 'one'}" in map(str, second.loc["sa", "notes"])
    assert second.loc["Mine", "params"] == 8 * 4 + 4 + 4 * 8 + 8
    assert run.meta["reused"]["cases"] == list(held.loc[["sa", "linear"], "case"])
    copied, original = (
        r.samples()[lambda f: f["case"].str.startswith("sa")][["process", "mode", "at_s", "ms"]].to_numpy().tolist()
        for r in (run, one)
    )
    assert copied == original
    assert list(run.finished()[held.loc["sa", "case"]]) == [0, 1, 2, 3]
    copied, original = (r.timeline()[lambda f: f["case"].str.startswith("sa")]["bytes"] for r in (run, one))
    assert list(copied) == list(original)
    assert len(copied) > 0
    (ranking,) = comparison.rankings(run)
    rounds = {row.label: list(row.values["latency_infer"].processes) for row in ranking.standings}
    assert rounds == {"Mine (width=4)": [1, 2, 3], "sa": [], "linear (reduction=4)": []}

    with pytest.raises(UsageError, match=r"cannot be reused \(cpu: .* then, another now\)"):
        comparison.measure(plan, {**now, "cpu": "another"}, reuse=tmp_path / "one")
    with pytest.raises(UsageError, match=r"target: 0.02 then, 0.03 now; sample_s: 0.01 then, 0.3 now"):
        comparison.measure(replace(plan, asked=load("compare")), now, reuse=tmp_path / "one")
    meta = tmp_path / "one" / "run.json"
    for old, new, reason in (
        ('"state": "finished"', '"state": "interrupted"', "it is not finished; continue it with ctxbench resume"),
    ):
        meta.write_text(meta.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        with pytest.raises(UsageError, match=f"cannot be reused: {reason}"):
            comparison.measure(plan, now, reuse=tmp_path / "one")
        meta.write_text(meta.read_text(encoding="utf-8").replace(new, old), encoding="utf-8")

    monkeypatch.setattr("ctxbench.base.load.OTHERS_LIMIT", -1)  # every process is disturbed
    third = comparison.measure(plan, now, reuse=tmp_path / "one", out=tmp_path / "three")
    assert {
        case: len(found) for case, found in third.finished().items() if case in held["case"].to_list()
    } == dict.fromkeys(held.loc[["sa", "linear"], "case"], 4)


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_candidate_that_breaks_the_contract_is_not_measured(file: Path, tmp_path: Path) -> None:
    options = ("--modules", "sa", "--shape", "1,8,4,4", "--processes", "1", "--out", tmp_path / "run")
    refused = invoke("compare", f"{file}:Wrong", f"{file}:Wrong", *options)
    assert refused.exit_code == 1
    assert re.search(r"item 0 of the batch changes by .* of its maximum when only item 1 changes", refused.output)
    assert not (tmp_path / "run").exists()
    candidates, own = (f"{file}:Wrong", f"{file}:Mine"), ("--set", "Wrong.kernel=3")
    both = invoke("compare", *candidates, *own, *options)
    assert both.exit_code == 1
    assert f"left out: {file}:Wrong; fix it" in both.output
    assert "Mine" in RunFolder.open(tmp_path / "run").frame()["module"].to_list()


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_an_instance_is_compared_at_its_own_width(
    file: Path, tmp_path: Path, suite_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module(file.rename(tmp_path / "blocks_of_a_session.py").stem).Mine
    suite = str(suite_file(["sa"], metrics=("params",)))
    read, listed = Mock(wraps=disk.read_toml), Mock(side_effect=Suite._points)
    monkeypatch.setattr("ctxbench.base.disk.read_toml", read)
    monkeypatch.setattr(Suite, "_points", lambda *arguments: listed(*arguments))
    checked: list[str] = []
    options: dict[str, Any] = {"suite": suite, "modules": "sa", "rank_by": "params"}
    run = ctxbench.compare(
        [found(16, width=3), functools.partial(found, width=4)],
        out=tmp_path / "run",
        on_part=lambda part: checked.append(str(part)),
        **options,
    )
    assert (read.call_args_list.count(call(Path(suite))), listed.call_count) == (1, 1)
    assert run.value.frame[["module", "channels", "params"]].to_numpy().tolist()[:2] == [
        ["Mine", 16, 16 * 3 + 3 + 3 * 16 + 16],
        ["Mine(width=4)", 16, 16 * 4 + 4 + 4 * 16 + 16],
    ]
    assert [text.partition(" meets")[0] for text in checked[:2]] == ["Mine", "Mine(width=4)"]
    assert checked[-1].startswith("3 cases: ")
    assert run.frame["module"].tolist() == ["Mine", "Mine(width=4)", "sa"]
    with pytest.raises(UsageError, match=r"^Mine is made for 16 channels and not for 32: take inputs"):
        ctxbench.compare(found(16, width=3), shape=(1, 32, 4, 4), out=tmp_path / "other", **options)


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_the_settings_of_a_config_are_rows(tmp_path: Path, suite_file: Callable[..., Path]) -> None:
    file = tmp_path / "with_config.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom torch import nn\n\n"
        "@dataclass(frozen=True)\nclass Config:\n    width: int = 2\n\n"
        "class Mine(nn.Sequential):\n    def __init__(self, channels: int, cfg: Config = Config()) -> None:\n"
        "        super().__init__(nn.Conv2d(channels, cfg.width, 1), nn.Conv2d(cfg.width, channels, 1))\n",
        encoding="utf-8",
    )
    suite = suite_file(["sa"], metrics=("params",))
    options = ("--suite", suite, "--modules", "sa", "--set", "cfg.width=2,5", "--rank-by", "params")
    done = invoke("compare", f"{file}:Mine", *options, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert re.search(r"^\d +> Mine \[local: 1 x 1\] +5 ", done.output, re.MULTILINE)
    assert done.stderr.count("verifying") == 1
    frame = RunFolder.open(tmp_path / "run").frame()
    assert [json.loads(text) for text in frame["hparams"][:2]] == [{"cfg.width": 2}, {"cfg.width": 5}]
    assert frame["params"].tolist()[:2] == [8 * 2 + 2 + 2 * 8 + 8, 8 * 5 + 5 + 5 * 8 + 8]


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_module_without_weights_trains_by_the_gradient_of_its_input(tmp_path: Path) -> None:
    file = tmp_path / "spectrum.py"
    file.write_text(
        "import torch\n\n\nclass Spectrum(torch.nn.Module):\n    def __init__(self, channels: int) -> None:\n"
        "        super().__init__()\n\n    def forward(self, x):\n        return torch.fft.fft2(x).real\n"
    )
    options = ("--anyway", "--processes", "1", "--sample-time", "0.01", "--shape", "1,8,4,4", "--out", tmp_path / "run")
    done = invoke("compare", f"{file}:Spectrum", "--modules", "external", *map(str, options))
    row = RunFolder.open(tmp_path / "run").frame().set_index("module").loc["Spectrum"]
    assert row["status"] == "ok", row["message"]
    assert min(row[f"latency_{mode}_ms"] for mode in ("train", "infer")) > 0
    # in training the output and the gradient of the input, each a map of 8 x 4 x 4 numbers
    assert row["memory_train_bytes"] >= 2 * 4 * 8 * 4 * 4
    assert "the module has no weight to train: its training step computes the gradient of its input" in map(
        str, row["notes"]
    )
    assert "Not compared, since not every row has it" not in done.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rank-by", "speed"], "unknown quantity to rank by 'speed'"),
        (["--modules", "saa"], "unknown module 'saa'; did you mean 'sa'"),
        (["--suite", "comparre"], "unknown suite 'comparre'; did you mean 'compare'"),
        (["--set", "width"], "--set 'width' is not [module.]hyperparameter=value"),
    ],
)
@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_a_wrong_name_is_refused_before_anything_runs(file: Path, options: list[str], sentence: str) -> None:
    result = invoke("compare", f"{file}:Mine", *options)
    assert isinstance(result.exception, UsageError)
    assert sentence in str(result.exception)
    assert "contract" not in result.output


@pytest.mark.parametrize(
    ("candidates", "settings", "sentence"),
    [
        (["{file}:Mine", "{file}:Mine"], {}, "are both called 'Mine'"),
        (["{file}:Mine"], {"lineal": {"reduction": 4}}, "did you mean 'linear'"),
        (["{file}:Mine"], {"linear": {"width": 4}}, "unknown hyper-parameter of 'linear' 'width'"),
    ],
)
def test_names_that_do_not_fit_together_are_refused(
    file: Path, tmp_path: Path, candidates: list[str], settings: dict[str, dict[str, Any]], sentence: str
) -> None:
    named = [candidate.format(file=file) for candidate in candidates]
    plan = comparison.ComparisonPlan(load("compare"), named, ["linear"], settings)
    with pytest.raises(UsageError, match=sentence):
        comparison.measure(plan, {}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_suite_measures_the_whole_registry_with_every_metric() -> None:
    suite = load("compare")
    assert suite.file.modules == ["*"]
    assert list(suite.file.metrics) == ["params", "macs", "memory", "latency"]
    assert {case.shape for case in suite.cases()} == {(1, 256, 64, 64)}


def test_an_ablation_has_a_figure_over_the_hyper_parameter_with_the_most_values(file: Path) -> None:
    asked = load("compare", Overrides(metrics=["params", "latency"]))
    settings: dict[str, dict[str, Any]] = {"Local": {"kernel": [3, 5, 7]}, "Mine": {"width": 3}}
    plan = comparison.ComparisonPlan(asked, [f"{file}:Local", f"{file}:Mine"], ["sa"], settings)
    (figure,) = plan.suite.file.figures
    assert (figure.name, figure.title, figure.x) == ("settings", "Costs of Local by kernel", "kernel")
    assert (figure.y, [*plan.keys]) == (["params", "latency_infer"], ["Local", "Mine"])
    assert replace(plan, settings={"Local": {"kernel": 5}}).suite.file.figures == []


@pytest.mark.parametrize(("name", "marks"), [("Normed", ["fails: exact gradients"]), ("HandedOn", [])])
def test_a_block_whose_gradients_are_wrong_is_told_and_marked(name: str, marks: list[str]) -> None:
    entry = registry.get(f"{Path(__file__).parents[2] / 'fixtures' / 'normed.py'}:{name}")
    checks = [each for each in CHECKS if each.name == "exact gradients"]
    results = list(run_checks(Subject(entry, entry.load(), 8, {}, (5, 4)), checks))
    told: list[Any] = []
    function._tell(name, results, told.append)
    assert comparison.marks_of([(name, results)]) == marks
    assert [WAY_OUT in str(each) for each in told] == [True] * len(marks) + [False]
