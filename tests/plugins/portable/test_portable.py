"""Findings of targets on modules: by fakes what is concluded from a converter, by the converters what they say."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_small_modules
import torch
from conftest import TINY, Done
from test_small_modules import Complex, SixAxes
from torch import Tensor, nn
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.base.clocks import FORKS
from ctxbench.base.errors import UsageError
from ctxbench.base.extras import packages_of
from ctxbench.meta.without_compiler import without_compiler
from ctxbench.model.case import Case
from ctxbench.model.suite_file import MeasureTable
from ctxbench.plugins.portable import metric
from ctxbench.plugins.portable.beside import on_targets
from ctxbench.plugins.portable.found import PHONES, SERVERS, Found
from ctxbench.plugins.portable.graph import GraphCall, blamed, exported_calls, outside_of
from ctxbench.plugins.portable.isolated import NoAnswer, isolated
from ctxbench.plugins.portable.targets import TARGETS, Converted, Target, tried
from ctxbench.results.run_folder import RunFolder
from ctxbench.worker import tasks
from ctxbench.worker.protocol import MeasureCase

X = torch.randn(1, 8, 6, 4, generator=torch.Generator().manual_seed(0))


class Grid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value, self.place = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        place = self.place(x).permute(0, 2, 3, 1).tanh()
        return nn.functional.grid_sample(self.value(x), place, align_corners=False) + x


def line_with(text: str, file: str | None = test_small_modules.__file__) -> str:
    """The line of a file that has a text first, as the plugin tells it."""
    path = Path(file or "")
    lines = path.read_text(encoding="utf-8").splitlines()
    return f"{path.name}, line {next(number for number, each in enumerate(lines, 1) if text in each)}"


def fake(convert: Callable[[nn.Module, Tensor], Converted], **more: Any) -> Target:
    return Target("Fake", ("torch",), convert, **more)


def double(number: int) -> int:
    print("a converter's log")
    return 2 * number


def fail() -> None:
    raise ValueError("no such thing")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    os._exit(3)


def hang() -> None:
    threading.Event().wait()


def has_sympy() -> bool:
    import sympy

    return issubclass(sympy.Symbol, sympy.Basic)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (fail, "ValueError: no such thing"),
        (crash, "its process ended with SIGSEGV"),
        (leave, "its process ended with exit code 3"),
    ],
)
def test_a_process_that_gives_no_answer_is_a_sentence(function: Callable[[], None], sentence: str) -> None:
    with pytest.raises(NoAnswer, match=f"^{sentence}"):
        isolated(function, limit_s=60)


@pytest.mark.slow
def test_a_process_answers_or_is_stopped() -> None:
    assert isolated(double, 4, limit_s=60) == 8
    with pytest.raises(NoAnswer, match=r"^stopped after 0.01 s$"):
        isolated(hang, limit_s=0.01)


@pytest.mark.slow
def test_a_process_has_none_of_the_stand_ins_of_counting() -> None:
    with without_compiler():
        assert isolated(has_sympy, limit_s=60)


@pytest.mark.slow
def test_calls_have_their_lines_and_ranks() -> None:
    calls = exported_calls(SixAxes(), X)
    assert [call.operator for call in calls[:4]] == ["view", "softmax", "sum", "mul"]
    assert calls[0] == GraphCall("view", line_with("six = x.view("), 6)
    assert calls[4].rank == 4


CALLED = (("add", 4), ("grid_sampler_2d", 4), ("view", 6), ("topk", 3), ("fft_rfft2", 4))
GRAPH = [GraphCall(name, f"a.py, line {line}", rank) for line, (name, rank) in enumerate(CALLED, 1)]


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("Core ML only supports tensors with rank <= 5. Layer 'x'", "view"),
        ("Unsupported fx node fft_rfft2, kind fft_rfft2", "fft_rfft2"),
        ("Lowering not found: aten.grid_sampler_2d.default", "grid_sampler_2d"),
        ("PyTorch convert function for op 'add' not implemented.", "add"),
        ("Encountered unresolved custom op: STABLEHLO_SORT.", "topk"),
        ("running DFT node. Name:'node_DFT_46'", "fft_rfft2"),
        ("node topk_1 is unknown", "topk"),
        ("Please add a view of this to the report", ""),
        ("it frankly failed", ""),
    ],
)
def test_an_error_is_about_the_operator_that_it_names(text: str, operator: str) -> None:
    call = blamed(text, GRAPH, most_rank=5)
    assert (call.operator if call else "") == operator


def test_parts_are_those_of_the_accelerator_and_the_stretches_between() -> None:
    inside = GraphCall("executorch_call_delegate", "", 4)
    one, two = GraphCall("topk", "a.py, line 1", 3), GraphCall("sin", "", 3)
    assert outside_of([inside, one, two, inside, inside, two]) == (["topk (a.py, line 1)", "sin", "sin"], 5)
    assert outside_of([inside]) == ([], 1)
    assert outside_of([one, two]) == (["topk (a.py, line 1)", "sin"], 1)


def test_a_status_is_told_in_words_and_kept_as_json() -> None:
    cases = {
        Found("whole"): ("whole", ""),
        Found("whole", ran=False): ("not run", ""),
        Found("whole", one_size="it says so"): ("one size", "one size only: it says so"),
        Found("parts", outside=("a (x.py, line 1)", "b", "b"), parts=3): (
            "3 parts", "3 parts, outside: a (x.py, line 1), b",
        ),
        Found("parts", outside=("a",), parts=1): ("all outside", "all outside, outside: a"),
        Found("refused", "rank 6"): ("refused", "refused: rank 6"),
        Found("absent", "Core ML needs coremltools"): ("absent", "absent: Core ML needs coremltools"),
    }  # fmt: skip
    for found, told in cases.items():
        assert (found.short, found.sentence) == told
        assert Found.of_plain(found.plain) == found
    assert Found("whole").plain == {"status": "whole"}


def test_a_converter_s_output_is_held_against_pytorch_s() -> None:
    model = nn.Conv2d(8, 8, 1)
    off = tried(fake(lambda model, x: Converted(lambda value: 1.0005 * model(value))), model, X)
    assert off.status == "whole"
    assert off.error == pytest.approx(0.0005, rel=1e-2)
    wrong = tried(fake(lambda model, x: Converted(lambda value: 1.5 * model(value))), model, X)
    assert (wrong.status, wrong.reason) == ("wrong", "its output differs from PyTorch's by 0.50, relatively")
    assert wrong.error == pytest.approx(0.5, rel=1e-5)
    infinite = tried(fake(lambda model, x: Converted(lambda value: model(value) / 0)), model, X)
    assert (infinite.status, infinite.error) == ("wrong", None)
    not_run = tried(fake(lambda model, x: Converted(None)), model, X)
    assert (not_run.short, not_run.error, not_run.versions) == ("not run", None, f"torch {torch.__version__}")


def test_what_draws_random_numbers_is_not_compared() -> None:
    found = tried(fake(lambda model, x: Converted(model)), Wrapped(lambda x: x + torch.randn_like(x)), X)
    assert (found.status, found.error) == ("whole", None)


@pytest.mark.slow
def test_a_refusal_names_the_operator_and_its_line() -> None:
    def refuse(model: nn.Module, x: Tensor) -> Converted:
        raise ValueError("Core ML only supports tensors with rank <= 5.\nand more")

    found = tried(fake(refuse), SixAxes(), X)
    line = line_with("six = x.view(")
    assert found.sentence == (
        f"refused: view ({line}), rank 6: Core ML only supports tensors with rank <= 5; "
        "instead: windows by one swap of axes, with all neighbouring axes merged"
    )


@pytest.mark.slow
def test_one_size_only_is_told_with_the_reason() -> None:
    def refuse(model: nn.Module, x: Tensor) -> Converted:
        raise ValueError("sizes are constants")

    def whole(model: nn.Module, x: Tensor) -> Converted:
        return Converted(model)

    def zeros(model: nn.Module, x: Tensor) -> Converted:
        return Converted(torch.zeros_like)

    assert tried(fake(whole, any_size=whole), nn.ReLU(), X).one_size == ""
    assert tried(fake(whole, any_size=refuse), nn.ReLU(), X).one_size == "sizes are constants"
    assert "another size is not PyTorch's" in tried(fake(whole, any_size=zeros), nn.ReLU(), X).one_size
    own = tried(fake(whole, any_size=whole), nn.LayerNorm([6, 4]), X).one_size
    assert own.startswith("the module itself takes no other: ")


def test_columns_hold_a_number_or_a_reason_for_each_target() -> None:
    found = {
        "export": Found("whole", versions="torch 2"),
        "executorch": Found("parts", outside=("a", "b"), parts=3, versions="executorch 1"),
        "coreml": Found("refused", "rank 6", versions="coremltools 9"),
        "litert": Found("absent", "LiteRT needs litert_torch"),
    }
    values = metric.columns_of(found)
    assert (values["portable"], values["portable_tried"]) == (1, 3)
    assert values["portable_versions"] == "torch 2, executorch 1, coremltools 9"
    assert (values["portable_export"], values["portable_executorch"]) == (0, 2)
    assert values["portable_coreml_reason"] == "refused: rank 6"
    assert values["portable_onnx_reason"] == "absent: not asked for"
    for name in TARGETS:
        assert (f"portable_{name}" in values) != (f"portable_{name}_reason" in values)
    row = {column.name: None for column in metric.METRIC.columns} | values
    assert metric.METRIC.sentence(row) == (
        "can be deployed: whole in torch.export; ExecuTorch (XNNPACK): 3 parts, outside: a, b; Core ML: refused: rank "
        "6; LiteRT: absent: LiteRT needs litert_torch."
    )
    assert metric.beside_of("executorch")(row) == "(3 parts)"


def test_choose_has_columns_of_the_targets_that_take_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts, refused = Found("whole"), Found("parts", outside=("topk",), parts=3), Found("refused", "rank 6")
    rows = {
        "a": dict.fromkeys((*SERVERS, *PHONES), whole),
        "b": dict(zip((*SERVERS, *PHONES), (whole, refused, parts, refused, whole), strict=True)),
    }
    monkeypatch.setattr("ctxbench.plugins.portable.beside.stored", lambda: rows)
    columns, sentence = on_targets(["b", "mine", "a"])
    assert [(column.group, column.origin) for column, _ in columns] == [("servers", "measured"), ("phones", "measured")]
    assert [[cell.text for cell in cells] for _, cells in columns] == [
        ["1 of 2", "", "2 of 2"],
        ["2 of 3", "", "3 of 3"],
    ]
    assert "results/portable-cpu" in sentence
    assert on_targets(["mine"]) == ([], "")


def test_a_missing_converter_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.base.extras.find_spec", lambda name: None)
    asked = Asked(portable_targets=["coreml"])
    metric.count(asked)  # type: ignore[arg-type]  # a stand-in
    assert asked.values["portable_tried"] == 0
    assert asked.values["portable_coreml_reason"] == (
        'absent: Core ML needs coremltools: in the clone, pip install -c constraints.txt ".[coreml]"'
    )


def test_an_unknown_target_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="unknown target 'onx'; did you mean 'onnx'"):
        metric.count(Asked(portable_targets=["onx"]))  # type: ignore[arg-type]  # a stand-in


class Asked:
    """A measurement that has settings and keeps what is reported."""

    def __init__(self, **settings: Any) -> None:
        self.settings = type("Settings", (), {"seed": 0, **settings})()
        self.values: dict[str, Any] = {}

    def emit(self, message: object) -> None:
        pass

    def report(self, values: dict[str, Any]) -> None:
        self.values |= values


@pytest.mark.plugin("check")
def test_a_gate_finds_what_is_split_or_refused() -> None:
    from ctxbench.plugins.check.result import EXACT_COLUMNS, ExactChange

    assert EXACT_COLUMNS["portable"] == tuple(f"portable_{name}" for name in TARGETS)
    split, refused, mended = (ExactChange("c", "portable_coreml", *each) for each in ((0, 2), (0, None), (None, 0)))
    assert split.fails
    assert refused.fails
    assert not mended.fails


@pytest.mark.processes
def test_a_run_tells_where_a_module_can_be_deployed(command: Callable[..., Done], tmp_path: Path) -> None:
    suite, out = tmp_path / "tiny.toml", tmp_path / "run"
    own = TINY.format(
        modules='["simam"]',
        metrics='["params", "portable"]',
        axes="",
        processes=1,
        timeout=60,
        measure='portable_targets = ["export"]',
    )
    suite.write_text(own, encoding="utf-8")
    done = command("run", "--suite", suite, "--static", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = RunFolder.open(out).frame().to_dict("records")
    assert (row["portable"], row["portable_tried"], row["portable_export"]) == (1, 1, 0)
    assert row["portable_versions"] == f"torch {torch.__version__}"
    assert row["portable_onnx_reason"] == "absent: not asked for"
    assert "1 of 1" in done.stdout


@pytest.mark.extra("onnx")
@pytest.mark.slow
def test_onnx_runtime_takes_a_spectrum_for_one_size() -> None:
    found = tried(TARGETS["onnx"], Complex(), X)
    assert (found.status, found.short) == ("whole", "one size")
    assert found.error == pytest.approx(0, abs=1e-5)
    assert found.one_size.startswith(f"fft_rfft2 ({line_with('torch.fft.irfft2')}): ")


@pytest.mark.extra("openvino")
@pytest.mark.slow
def test_openvino_keeps_float32() -> None:
    found = tried(TARGETS["openvino"], Grid(), X)
    assert found.short == "whole"
    assert found.error == pytest.approx(0, abs=1e-5)


@pytest.mark.extra("executorch")
@pytest.mark.slow
def test_executorch_tells_what_xnnpack_leaves_out() -> None:
    found = isolated(tried_by_name, "executorch", Grid(), limit_s=60)
    assert (found.status, found.parts) == ("parts", 3)
    assert list(found.outside) == [f"grid_sampler_2d ({line_with('nn.functional.grid_sample', __file__)})"]
    assert found.error == pytest.approx(0, abs=1e-5)


@pytest.mark.extra("coreml")
@pytest.mark.slow
def test_core_ml_refuses_a_spectrum_and_runs_nothing_here() -> None:
    refused = isolated(tried_by_name, "coreml", Complex(), limit_s=60)
    assert refused.status == "refused"
    assert refused.reason.startswith(f"fft_rfft2 ({line_with('torch.fft.irfft2')}): ")
    found = isolated(tried_by_name, "coreml", Grid(), limit_s=60)
    assert (found.short, found.error) == ("not run", None)


@pytest.mark.extra("litert")
@pytest.mark.slow
def test_litert_runs_what_it_converts() -> None:
    found = isolated(tried_by_name, "litert", nn.Conv2d(8, 8, 1), limit_s=60)
    assert found.short == "whole"
    assert found.error == pytest.approx(0, abs=1e-5)


def tried_by_name(name: str, model: nn.Module) -> Found:
    return tried(TARGETS[name], model, X)


def test_each_extra_of_a_target_has_its_packages() -> None:
    extras = {target.extra for target in TARGETS.values()} - {""}
    assert all(packages_of(extra) for extra in extras)
    assert {name for extra in extras for name in packages_of(extra)} == {*packages_of("portable")}
    assert "portable" in sys.modules["ctxbench.plugins.portable"].PLUGIN.extras


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.extra(each.extra)] * bool(each.extra)) for name, each in TARGETS.items()],
)
@pytest.mark.skipif(not FORKS, reason="only where processes fork is anything imported before")
def test_what_a_target_imports_before_the_fork_starts_no_thread_and_asks_no_driver(name: str) -> None:
    program = Path(__file__).with_name("import_converters.py")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as the fork server has it
    command = [sys.executable, str(program), *TARGETS[name].imports]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "0"


def test_the_targets_of_a_suite_are_imported_once_where_their_packages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Target("Fake", (), lambda model, x: Converted(None), imports=("colorsys", "no_such_module"))
    monkeypatch.setattr(metric, "TARGETS", {"fake": fake, "absent": replace(fake, extra="none", imports=("wave",))})
    monkeypatch.setattr("ctxbench.base.extras.lacking", lambda title, extra: extra)
    asked = SimpleNamespace(portable_targets=["fake", "absent", "of another version"])
    assert metric.imports(asked) == ["colorsys", "no_such_module"]  # type: ignore[arg-type]  # a stand-in
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    case = Case("sa", registry.get("sa").reference, {}, (1, 8, 6, 4))
    tasks.prepare(MeasureCase(case, MeasureTable(), ["params"]))
    assert "colorsys" not in sys.modules
    tasks.prepare(MeasureCase(case, MeasureTable(portable_targets=["fake"]), ["portable"]))
    assert "colorsys" in sys.modules
