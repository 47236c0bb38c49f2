"""The ways of running a module: what each declares, and what the runtimes that take an ONNX file compute."""

import ctypes
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from conftest import Done

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.base.extras import packages_of
from ctxbench.devices import Unsupported
from ctxbench.executions import execution, executions
from ctxbench.executions.base import Execution
from ctxbench.modules._onnx import inverse, pooled
from ctxbench.plugins.runtimes.exported import Exported, export
from ctxbench.results.run_folder import RunFolder

RUNTIMES = [way for way in executions().values() if isinstance(way, Exported)]
HAVE = [
    pytest.param(way, id=way.name, marks=pytest.mark.extra(way.extra)) for way in RUNTIMES if way.device_type == "cpu"
]
LINEAR_TIME = (
    *("sra", "lite_mla", "mdta", "xca", "msca", "lka", "focal", "cbam", "coord"),
    *("ss2d", "vim", "nc_ssd", "bi_wkv"),
)
INVERTS = """
import torch
from ctxbench import register

@register("inverts", title="Inverts")
class Inverts(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()

    def forward(self, x):
        square = x.flatten(2) @ x.flatten(2).mT + torch.eye(x.shape[1])
        return x + torch.linalg.inv(square).mean()
"""


HANGS = """
import time
import torch
from ctxbench import register

@register("hangs", title="Hangs while it is exported", params="0", macs="0")
class Hangs(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()

    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            time.sleep(1000)
        return x + 1
"""


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """|value - exact| / |exact|, in float64."""
    return float(torch.linalg.vector_norm(value.double() - exact.double()) / torch.linalg.vector_norm(exact.double()))


def test_each_way_is_a_file_and_torch_s_own_come_first() -> None:
    assert [*executions()][:3] == ["eager", "compile", "graph"]
    assert [way.name for way in RUNTIMES] == ["onnxruntime", "onnxruntime-dynamic", "openvino", "tensorrt"]
    for way in executions().values():
        assert way.about
        assert ("train" in way.modes) == (not way.no_training)


def test_an_unknown_way_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="unknown execution 'onnxruntim'; did you mean 'onnxruntime'"):
        execution("onnxruntim")


@pytest.mark.parametrize("way", HAVE)
@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("cuda:0", "float32", "contiguous"), r"runs on cpu, not on cuda:0"),
        (("cpu", "bfloat16", "contiguous"), r"takes .*float32.*, not bfloat16"),
        (("cpu", "autocast-float16", "contiguous"), r"not autocast-float16"),
        (("cpu", "float32", "channels_last"), r"takes contiguous inputs, not channels_last"),
    ],
)
def test_what_a_runtime_does_not_take_is_a_sentence(way: Execution, asked: tuple[str, str, str], sentence: str) -> None:
    with pytest.raises(Unsupported, match=sentence):
        way.check(*asked)


@pytest.mark.parametrize("way", RUNTIMES, ids=lambda way: way.name)
def test_a_runtime_that_is_not_installed_is_named_with_the_command(
    way: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxbench.base.extras.find_spec", lambda name: None)
    with pytest.raises(
        Unsupported,
        match=rf'{way.name} needs onnx, .*: in the clone, pip install -c constraints.txt "\.\[{way.extra}\]"$',
    ):
        way.check(way.device_type, "float32", "contiguous")


@pytest.mark.slow
@pytest.mark.parametrize("way", HAVE)
@pytest.mark.parametrize("key", ["sa", "a2", "ham_nmf"])
def test_a_runtime_computes_what_torch_computes(way: Exported, key: str) -> None:
    torch.manual_seed(0)
    model = registry.get(key).build(16, {"init": "fixed", "rank": 8} if key == "ham_nmf" else {}).eval()
    x = torch.randn(2, 16, 7, 6)
    built = way.build(model, x)
    for other in (x, x.neg()):
        with torch.inference_mode():
            assert relative_error(built.forward(other), model(other)) < 1e-5
    assert built.facts["export_bytes"] > 1000
    assert built.facts["export_operators"] > 1
    assert built.facts["export_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("way", HAVE)
def test_another_process_of_a_case_opens_what_the_first_exported(way: Exported, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = registry.get("sa").build(16).eval(), torch.randn(2, 16, 7, 6)
    first, second = (way.build(model, x, str(tmp_path / "case")) for _ in range(2))
    assert first.facts["export_s"] > 0
    assert "export_s" not in second.facts
    assert first.facts["export_bytes"] == second.facts["export_bytes"]
    assert first.facts["export_operators"] == second.facts["export_operators"]
    assert torch.equal(first.forward(x), second.forward(x))


@pytest.mark.slow
@pytest.mark.parametrize("way", HAVE)
@pytest.mark.parametrize("key", ["ham_cd", "apnb", "ppm", "apc", "dm", "agent"])
def test_forms_for_an_export_compute_the_same(way: Exported, key: str) -> None:
    torch.manual_seed(0)
    model = registry.get(key).build(16, {"init": "fixed", "rank": 8} if key == "ham_cd" else {}).eval()
    x = torch.randn(2, 16, 11, 13)
    with torch.inference_mode():
        assert relative_error(way.build(model, x).forward(x), model(x)) < 2e-5


@pytest.mark.slow
@pytest.mark.parametrize("way", [each for each in HAVE if each.id != "onnxruntime-dynamic"])
@pytest.mark.parametrize("key", LINEAR_TIME)
def test_blocks_of_linear_time_are_exported(way: Exported, key: str) -> None:
    torch.manual_seed(0)
    model, x = registry.get(key).build(32).eval(), torch.randn(2, 32, 5, 6)
    with torch.inference_mode():
        assert relative_error(way.build(model, x).forward(x), model(x)) < 1e-5


@pytest.mark.extra("onnx")
@pytest.mark.slow
def test_an_export_for_any_size_takes_another(tmp_path: Path) -> None:
    way = executions()["onnxruntime-dynamic"]
    model = registry.get("apnb").build(8).eval()
    built = way.build(model, torch.randn(1, 8, 9, 8))
    other = torch.randn(1, 8, 7, 12)
    with torch.inference_mode():
        assert relative_error(built.forward(other), model(other)) < 1e-5


@pytest.mark.parametrize("smallest", [0.1, 4.0])
def test_newton_s_steps_invert_any_matrix_within_the_bounds(monkeypatch: pytest.MonkeyPatch, smallest: float) -> None:
    rotation, _ = torch.linalg.qr(torch.randn(3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    matrix = rotation @ torch.diag(torch.linspace(smallest, 8.1, 8, dtype=torch.float64)) @ rotation.mT
    exact = torch.linalg.inv(matrix)
    monkeypatch.setattr("torch.onnx.is_in_onnx_export", lambda: True)
    assert relative_error(inverse(matrix, 0.1, 8.1), exact) < 1e-12
    assert relative_error(inverse(matrix.float(), 0.1, 8.1), exact) < 1e-5


@pytest.mark.parametrize(("size", "grid"), [((7, 5), 3), ((8, 8), 8), ((9, 4), 2), ((2, 3), 6), ((5, 5), 1)])
def test_exported_pooling_is_adaptive_pooling(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], grid: int
) -> None:
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    expected = torch.nn.functional.adaptive_avg_pool2d(image, grid)
    monkeypatch.setattr("torch.onnx.is_in_onnx_export", lambda: True)
    torch.testing.assert_close(pooled(image, grid), expected)


@pytest.mark.slow
@pytest.mark.parametrize("way", HAVE[:1])
def test_what_has_no_operator_is_named_with_the_line(way: Exported, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(INVERTS, encoding="utf-8")
    model = registry.get(f"{path}:Inverts").build(4)
    with pytest.raises(Unsupported, match=r"cannot be exported to ONNX: .*linalg_inv.*\(mine.py, line 12\)"):
        way.build(model, torch.randn(1, 4, 5, 5))


@pytest.mark.processes
@pytest.mark.parametrize("way", HAVE)
def test_a_run_has_times_of_inference_the_export_and_no_training(
    way: Exported, command: Callable[..., Done], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--processes", 1, "--sample-time", 0.01, "--metrics", "params,memory,latency,precision")
    shape = ("--shape", "1,16,8,8", "--out", out)
    done = command("run", "--suite", "quick", "--modules", "a2", "--execution", way.name, *options, *shape)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = RunFolder.open(out)
    (row,) = folder.frame().to_dict("records")
    assert row["status"] == "ok"
    assert row["latency_infer_ms"] > 0
    assert row["error_infer"] < 1e-5
    assert row["export_operators"] > 1
    assert "no training with execution" in " ".join(map(str, row["notes"]))
    assert packages_of(way.extra)[-1] in folder.meta["environment"]["packages"]


@pytest.mark.processes
@pytest.mark.parametrize("way", HAVE[:1])
def test_an_export_has_a_time_limit_of_its_own(
    way: Exported, command: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # below which a suite may name code
    path, out = tmp_path / "hangs.py", tmp_path / "run"
    path.write_text(HANGS, encoding="utf-8")
    suite = tmp_path / "one.toml"
    suite.write_text(
        f'title = "t"\nmodules = ["{path}:Hangs"]\nmetrics = ["latency"]\n[axes]\nshape = [1, 4, 3, 3]\n'
        f'execution = "{way.name}"\n[measure]\nprocesses = 1\ncompile_timeout_s = 1\n'
    )
    assert command("run", "--suite", suite, "--out", out).returncode == 1
    (row,) = RunFolder.open(out).frame().to_dict("records")
    assert (row["status"], row["message"]) == ("timeout", "still compiling or exporting after 1 s (compile_timeout_s)")


class FakeTensorRt:
    """Parts of ONNX Runtime used by its TensorRT provider; a run writes twice the input where the output is bound."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.bound: dict[str, tuple[object, ...]] = {}
        self.providers: list[object] = []
        self.available = ["TensorrtExecutionProvider", "CPUExecutionProvider"]

    def module(self) -> ModuleType:
        found = ModuleType("onnxruntime")
        found.__spec__ = ModuleSpec("onnxruntime", None)
        vars(found).update(
            SessionOptions=lambda: SimpleNamespace(add_session_config_entry=self.entries.__setitem__),
            InferenceSession=self.session,
            get_available_providers=lambda: self.available,
        )
        return found

    def session(self, path: Path, options: object, providers: list[object]) -> SimpleNamespace:
        self.providers = providers
        ends = [[SimpleNamespace(name=name, shape=[1, 2, 3, 3])] for name in ("x", "y")]

        def binding() -> SimpleNamespace:
            def bind(name: str, *rest: object) -> None:
                self.bound[name] = rest

            return SimpleNamespace(bind_input=bind, bind_output=bind)

        return SimpleNamespace(
            get_inputs=lambda: ends[0],
            get_outputs=lambda: ends[1],
            io_binding=binding,
            run_with_iobinding=lambda _: self.copy(),
        )

    def copy(self) -> None:
        *_, source = self.bound["x"]
        *_, result = self.bound["y"]
        assert isinstance(source, int)
        assert isinstance(result, int)
        values = (ctypes.c_float * 18).from_address(source)
        (ctypes.c_float * 18).from_address(result)[:] = [2 * each for each in values]


def test_tensorrt_runs_on_torch_s_stream_with_torch_s_tensors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeTensorRt()
    monkeypatch.setitem(sys.modules, "onnxruntime", fake.module())
    monkeypatch.setattr("torch.cuda.current_device", lambda: 3)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: SimpleNamespace(cuda_stream=77))
    way = executions()["tensorrt"]
    assert isinstance(way, Exported)
    forward, operators = way.open(tmp_path / "module.onnx")
    x = torch.randn(1, 2, 3, 3)
    assert torch.equal(forward(x), 2 * x)
    assert fake.bound["x"][:4] == ("cuda", 3, "float32", (1, 2, 3, 3))
    settings = {"device_id": 3, "user_compute_stream": "77", "trt_fp16_enable": False}
    assert fake.providers == [("TensorrtExecutionProvider", settings)]
    assert fake.entries == {"session.disable_cpu_ep_fallback": "1"}
    assert operators is None


def test_an_onnx_runtime_without_tensorrt_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTensorRt()
    fake.available.remove("TensorrtExecutionProvider")
    monkeypatch.setitem(sys.modules, "onnxruntime", fake.module())
    monkeypatch.setattr("ctxbench.base.extras.find_spec", lambda name: object())
    with pytest.raises(Unsupported, match="has no TensorRT: pip uninstall onnxruntime; pip install onnxruntime-gpu"):
        executions()["tensorrt"].check("cuda:0", "float32", "contiguous")
    with pytest.raises(Unsupported, match="tensorrt runs on cuda, not on cpu"):
        executions()["tensorrt"].check("cpu", "float32", "contiguous")


@pytest.mark.extra("onnx")
@pytest.mark.slow
def test_an_export_for_any_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="a scan has as many steps as the logarithm of its length"):
        export(registry.get("bi_wkv").build(8), torch.rand(1, 8, 4, 5), tmp_path / "module.onnx", dynamic=True)
