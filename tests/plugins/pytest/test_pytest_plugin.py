"""The fixture `ctxbench_case` in other people's test suites, and ctxbench's own benchmarks under pytest-benchmark."""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxbench.base.mode import MODES

pytestmark = pytest.mark.processes
pytest_plugins = "pytester"


MODULE = """
from torch import nn

class Context(nn.Module):
    def __init__(self, channels: int, width: int = 4) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, width, 1)
        self.up = nn.Conv2d(width, channels, 1)

    def forward(self, x):
        return x + self.up(self.down(x)).mean((2, 3), keepdim=True)

class Cropping(Context):
    def forward(self, x):
        return super().forward(x)[..., 1:]

class Endless(Context):
    def forward(self, x):
        return super().forward(x) / 0
"""

BENCHMARK = """
import pytest

@pytest.mark.parametrize("mode", ["infer", "train"])
def test_my_module(mode, benchmark, ctxbench_case):
    case = ctxbench_case("my_module.py:Context", shape=(2, 8, 6, 5), mode=mode, width=3)
    benchmark.extra_info.update(case.extra_info)
    benchmark(case.step)

def test_of_somebody_else(benchmark):
    benchmark(sum, [1, 2])
"""

STEPS = r"""
import pytest
import torch

@pytest.fixture(autouse=True, scope="module")
def settings():
    torch.set_num_threads(3)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True

def test_infer(ctxbench_case):
    y = ctxbench_case("my_module.py:Context", shape=(1, 8, 4, 4)).step()
    assert y.shape == (1, 8, 4, 4) and y.is_inference()

def test_train(ctxbench_case):
    y = ctxbench_case("my_module.py:Context", shape=(1, 8, 4, 4), mode="train").step()
    assert y.shape == (1, 8, 4, 4) and y.requires_grad

def test_error_of_the_module_s_own(ctxbench_case):
    with pytest.raises(ValueError, match=r"Cropping returns shape \[1, 8, 4, 3\] for \[1, 8, 4, 4\]"):
        ctxbench_case("my_module.py:Cropping", shape=(1, 8, 4, 4))

def test_settings(ctxbench_case):
    ctxbench_case("my_module.py:Context", shape=(1, 8, 4, 4), threads=2)
    assert torch.get_num_threads() == 2 and not torch.backends.cudnn.benchmark

def test_settings_afterwards():
    assert torch.get_num_threads() == 3
    assert torch.backends.cudnn.benchmark and torch.backends.cuda.matmul.allow_tf32
"""


WRONG = {
    '"ham_nmff"': "unknown module 'ham_nmff'; did you mean 'ham_nmf'?",
    '"nowhere.py:Context"': "there is no file *nowhere.py",
    '"no_such_package.module:Context"': "there is no module 'no_such_package.module' to import",
    '"my_module.py:Contxt"': "unknown class in my_module.py 'Contxt'; did you mean 'Context'? (known: *",
    '"sa", shape=(1, 64, 32)': "shape (1, 64, 32) has 3 numbers; it takes four, B,C,H,W, such as 1,512,128,128",
    '"sa", shape=(1, 64, 0, 32)': "shape (1, 64, 0, 32) holds 0; each of B,C,H,W is at least 1",
    '"sa", mode="eval"': "unknown mode 'eval' (known: infer, train)",
    '"sa", dtype="float23"': "unknown dtype 'float23'; did you mean 'float32'? (known: *",
    '"sa", dtype="tf32"': "tf32 exists on CUDA devices only",
    '"sa", device="tpu"': "unknown device 'tpu'; did you mean 'cpu'?*",
    '"sa", threads=0': "threads is 0; it is at least 1, or None for torch's default",
    '"ham_nmf", stepz=3': "unknown hyper-parameter of 'ham_nmf' 'stepz'; did you mean 'steps'? (known: *",
    '"my_module.py:Endless", shape=(1, 8, 4, 4)': "the output of the infer pass holds NaN or infinity",
}


def benchmarks(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The machine and the benchmarks of a JSON that pytest-benchmark wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["machine_info"], content["benchmarks"]


def test_a_user_s_module_and_under_pytest_benchmark(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("my_module.py").write_text(MODULE, encoding="utf-8")
    wrong = [f"def test_{n}(ctxbench_case):\n    ctxbench_case({each})\n" for n, each in enumerate(WRONG)]
    pytester.makepyfile(test_benchmark=BENCHMARK, test_steps=STEPS, test_wrong="\n".join(wrong))
    result = pytester.runpytest_subprocess("--benchmark-json=out.json", "--benchmark-max-time=0.001")
    result.assert_outcomes(passed=3 + 5, failed=len(WRONG))
    # Between two headings stands the sentence and nothing else.
    result.stdout.fnmatch_lines(
        [line for n, sentence in enumerate(WRONG.values()) for line in (f"_* test_{n} _*", sentence)], consecutive=True
    )
    machine, (infer, train, other) = benchmarks(pytester.path / "out.json")
    # 8 * 3 weights and 3 biases, 3 * 8 and 8; at 60 positions 24 products twice, and torchprofile counts each of the 16
    # means as one.
    for benchmark, mode in ((infer, "infer"), (train, "train")):
        info = benchmark["extra_info"]
        assert (info["params"], info["macs"], info["macs_counter"]) == (59, 60 * 24 * 2 + 16, "ctxbench")
        assert (info["case"], info["mode"]) == ("Context(width=3) 2x8x6x5 float32 cpu 1threads", mode)
        assert (info["module"], info["reference"], info["hparams"]) == ("Context", "my_module.py:Context", {"width": 3})
        assert (info["shape"], info["dtype"], info["device"], info["threads"]) == ([2, 8, 6, 5], "float32", "cpu", 1)
        assert info["memory_predicted_for"] == "cuda"
    # In blocks of 512 bytes: four parameters, the 720 bytes that down returns, the 1920 that up does.
    assert infer["extra_info"]["memory_infer_predicted_bytes"] == 4 * 512 + 1024 + 2048
    assert "memory_train_predicted_bytes" not in infer["extra_info"]
    assert train["extra_info"]["memory_train_predicted_bytes"] > 4 * 512 + 1024 + 2048
    assert other["extra_info"] == {}
    assert machine["ctxbench"]["packages"]["torch"]
    assert not {"time", "load_average"} & set(machine["ctxbench"])


def test_pytest_starts_without_anything_heavy_and_without_pytest_benchmark(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("ctxbench")
            assert not {"torch", "numpy", "scipy", "pandas", "pydantic", "pytest_benchmark.plugin"} & set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("-p", "no:benchmark").assert_outcomes(passed=1)


def test_the_project_s_benchmarks_are_the_ci_suite(pytester: pytest.Pytester) -> None:
    folder, out = Path(__file__).parents[3], pytester.path / "out.json"
    result = pytester.runpytest_subprocess(
        folder / "benchmarks",
        f"--rootdir={folder}",
        "-k=test_pass[linear or test_pass[sa",
        "--benchmark-max-time=0.001",
        f"--benchmark-json={out}",
    )
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes.get("failed", 0), outcomes.get("errors", 0)) == (4, 0, 0)
    assert outcomes["deselected"] == 11 * len(MODES) - 4  # the suite's modules, whatever other tests registered here
    _, found = benchmarks(out)
    assert [(each["group"], each["extra_info"]["params"], each["extra_info"]["macs"]) for each in found] == [
        ("infer", 66048, 335544320),
        ("train", 66048, 335544320),
        ("infer", 20641, 25608192),
        ("train", 20641, 25608192),
    ]
