"""Modules inside networks: slots, what is counted and timed there, the table of what a module adds, bad networks."""

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import Done
from torch import nn

import ctxbench
from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.devices import Unsupported
from ctxbench.model.case import Case
from ctxbench.plugins.networks.added import combine
from ctxbench.plugins.networks.table import network_tables
from ctxbench.registry import networks
from ctxbench.registry.slot import Slot, uses
from ctxbench.report.run_data import open_run

FILE = Path(__file__).parents[2] / "fixtures" / "small_network.py"
SMALL = f"{FILE}:small"


def case(module: str, network: str, shape: tuple[int, int, int, int], **hparams: Any) -> Case:
    return Case(module, registry.get(module).reference, hparams, shape, network=network)


def test_the_module_is_in_each_slot() -> None:
    model = case("sa", SMALL, (2, 3, 16, 24)).build()
    assert [(each.channels, type(each.module).__name__) for each in model.modules() if isinstance(each, Slot)] == [
        (8, "SelfAttention"),
        (16, "SelfAttention"),
    ]
    assert [tuple(given.shape) for _, given in uses(model, torch.randn(2, 3, 16, 24))] == [(2, 8, 4, 6), (2, 16, 2, 3)]
    assert model(torch.randn(2, 3, 16, 24)).shape == (2, 5)


def test_hyperparameters_reach_each_slot() -> None:
    model = case("se", SMALL, (1, 3, 8, 8), reduction=4).build()
    widths = [len(weight) for name, weight in model.named_parameters() if name.endswith("squeeze.weight")]
    assert widths == [2, 4]


def test_identity_is_in_no_list_and_leaves_a_slot_empty() -> None:
    assert "identity" not in registry.names()
    assert "identity" not in [entry.key for entry in registry.entries()]
    empty = case("sa", SMALL, (1, 3, 8, 8)).without()
    assert (empty.module, empty.hparams, empty.network) == ("identity", {}, SMALL)
    assert sum(each.numel() for each in empty.build().parameters()) == (3 * 16 + 1) * 8 + (8 * 4 + 1) * 16 + 17 * 5


@pytest.mark.parametrize(
    ("network", "shape", "sentence"),
    [
        ("small", (1, 3, 8, 8), "unknown network 'small'"),
        ("resnet50", (1, 3, 8, 8), "unknown network 'resnet50'; did you mean 'resnet50_d8'"),
        (f"{FILE}:smal", (1, 3, 8, 8), "unknown network in .* 'smal'; did you mean 'small'"),
        (f"{FILE}:constant", (1, 3, 8, 8), "is no function that builds a network"),
        (f"{FILE.with_name('none.py')}:small", (1, 3, 8, 8), "there is no file"),
        (SMALL, (1, 3, 12, 8), r"takes \[B, 3, H, W\] with H and W multiples of 8, not .*--shape 1,3,32,48"),
        (SMALL, (1, 64, 8, 8), r"takes \[B, 3, H, W\]"),
        (f"{FILE}:without_slot", (1, 3, 8, 8), "has no slot: put what make_module"),
        (f"{FILE}:no_module", (1, 3, 8, 8), "returns int, not an nn.Module"),
        (f"{FILE}:trained", (1, 3, 8, 8), "asks for trained weights, which ctxbench does not download"),
    ],
)
def test_a_network_that_cannot_be_is_a_sentence(network: str, shape: tuple[int, int, int, int], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        case("sa", network, shape).build()


@pytest.mark.parametrize(
    ("module", "network", "sentence"),
    [
        ("sa", "other_channels", r"asked for a module of 16 channels and is given \[1, 8, 8, 8\]"),
        ("sa", "tokens", r"is given \[1, 3, 64\]; a module takes \[B, C, H, W\]"),
        ("dm", "plain", r"maps \[1, 8, 3, 3\] to \[1, 32, 3, 3\]; choose hyper-parameters .* bottleneck=true"),
    ],
)
def test_a_module_that_does_not_fit_its_slot_is_a_sentence(module: str, network: str, sentence: str) -> None:
    model = case(module, f"{FILE}:{network}", (1, 3, 8, 8)).build()
    with pytest.raises(ValueError, match=sentence):
        model(torch.randn(1, 3, 8, 8))


@pytest.mark.usefixtures("shared_server")
def test_a_failure_in_a_network_is_a_row(tmp_path: Path) -> None:
    run = ctxbench.run("quick", modules=["dm"], network=f"{FILE}:plain", shape=(1, 3, 8, 8), static=True, out=tmp_path)
    rows = run.frame.set_index("module")
    assert rows.loc["identity", "status"] == "ok"
    assert rows.loc["dm", "status"] == "error"
    assert "bottleneck=true" in rows.loc["dm", "message"]
    assert network_tables(open_run(tmp_path)) == []


@pytest.fixture(scope="module")
def static(module_server: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network") / "run"
    few = {"se": {"reduction": 4}}
    ctxbench.run(
        "quick", modules=["se", "sa"], network=SMALL, shape=(2, 3, 32, 48), hparams=few, static=True, out=folder
    )
    return folder


@pytest.mark.processes
def test_counts_are_of_the_whole_network_and_of_the_module_alone(static: Path) -> None:
    frame = ctxbench.load(static).frame.set_index("module")
    assert list(frame.index) == ["identity", "se", "sa"]
    first, second = (2, 8, 8, 12), (2, 16, 4, 6)
    for name in ("se", "sa"):
        entry, row = registry.get(name), frame.loc[name]
        for column in ("params", "macs"):
            hparams = {"reduction": 4} if name == "se" else {}
            alone = sum(entry.closed_form(column, shape, hparams) or 0 for shape in (first, second))
            assert row[f"alone_{column}"] == alone == row[column] - frame.loc["identity", column]
        assert row["slots"] == f"1 x {list(first)}, 1 x {list(second)}"
    assert frame["network"].str.endswith("small_network.py:small").all()
    assert frame.loc["identity", "macs"] == 2 * (8 * 12 * 8 * 48 + 4 * 6 * 16 * 32 + 16 * 5 + 16)


@pytest.mark.processes
def test_the_table_has_what_a_module_adds(static: Path) -> None:
    (table,) = network_tables(open_run(static))
    frame = ctxbench.load(static).frame.set_index("module")
    data = table.data.set_index("module")
    for key, column in (("params", "params"), ("memory_train", "memory_train_predicted_bytes")):
        added = frame.loc["sa", column] - frame.loc["identity", column]
        assert data.loc["sa", f"{key}_added"] == added
        assert data.loc["sa", f"{key}_share"] == pytest.approx(100 * added / frame.loc["identity", column])
    assert data.loc["sa", "memory_train_alone"] == frame.loc["sa", "alone_memory_train_bytes"]
    assert any("1 x [2, 8, 8, 12]" in line for line in table.caption)
    assert network_tables(open_run(Path("results/table3-cpu"))) == []


@pytest.mark.processes
def test_times_are_differences_within_a_process(command: Callable[..., Done], tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--processes", 3, "--sample-time", 0.01, "--metrics", "latency", "--out", out)
    done = command("run", "--suite", "quick", "--modules", "sa", "--network", SMALL, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "What a module adds to" in done.stdout
    rows = ctxbench.load(out).frame.set_index("module")
    assert rows.loc["sa", "alone_train_ms"] > 0
    for mode in ("infer", "train"):
        ends = [rows.loc["sa", f"added_{mode}_{end}"] for end in ("low_ms", "ms", "high_ms")]
        assert ends == sorted(ends)
        assert pd.isna(rows.loc["identity", f"added_{mode}_ms"])
    assert rows[["batch", "channels", "height", "width"]].to_numpy().tolist() == [[1, 3, 32, 48]] * 2


def test_an_interval_of_a_difference_may_hold_0() -> None:
    found = combine([{"added_infer_ms": each} for each in (-1.0, 0.0, 1.0)])
    reach = 4.302653 / math.sqrt(3)
    assert found == pytest.approx({"added_infer_ms": 0, "added_infer_low_ms": -reach, "added_infer_high_ms": reach})
    assert combine([{"added_infer_ms": 2.0}]) == {"added_infer_ms": 2.0}
    assert combine([{"latency_infer_ms": 2.0}]) == {}


@pytest.mark.processes
def test_memory_says_what_of_the_peak_is_the_module_s(command: Callable[..., Done]) -> None:
    done = command("memory", "sa", "--network", SMALL, "--shape", "2,3,32,48")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "Made in sa.py and in memory at the peak:" in text
    assert "the module adds" in text
    done = command("memory", "apc", "--set", "bottleneck=true", "--network", SMALL, "--shape", "2,3,32,48")
    assert "Made in apc.py and _pyramid.py and in memory at the peak:" in " ".join(done.stdout.split())
    done = command("predict", "sa", "--network", SMALL, "--for", "t4")
    assert "[1, 3, 32, 48]" in done.stdout


@pytest.mark.slow
@pytest.mark.extra("networks")
@pytest.mark.parametrize(
    ("name", "shape", "slots", "params"),
    [
        ("resnet50_d8", (1, 3, 64, 64), [(1, 512, 8, 8)], 23_508_032 + 9 * 2048 * 512 + 1024 + 513 * 19),
        ("resnet18_os32", (1, 3, 64, 96), [(1, 128, 2, 3)], 11_176_512 + 9 * 512 * 128 + 256 + 129 * 19),
        ("vit_small", (1, 3, 224, 224), [(1, 384, 14, 14)] * 12, None),
        (
            "convnext_tiny",
            (1, 3, 64, 64),
            [(1, 96, 16, 16), (1, 192, 8, 8), (1, 384, 4, 4), (1, 768, 2, 2)],
            28_589_128,
        ),
    ],
)
def test_the_networks_are_those_of_their_papers(
    name: str, shape: tuple[int, int, int, int], slots: list[tuple[int, ...]], params: int | None
) -> None:
    with torch.device("meta"):
        model = case("identity", name, shape).build().eval()
        x = torch.empty(shape)
    assert [tuple(given.shape) for _, given in uses(model, x)] == slots
    if params:
        assert sum(each.numel() for each in model.parameters()) == params
    network = networks.get(name)
    assert (network.key, bool(network.title), bool(network.paper)) == (name, True, True)
    y = model(x)
    assert y.shape[2:] == (shape[2:] if y.dim() == 4 else ())


def test_each_network_is_a_file_of_its_name() -> None:
    assert networks.names() == ["convnext_tiny", "mmsegmentation", "resnet18_os32", "resnet50_d8", "vit_small"]


def test_without_timm_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxbench.base.extras.find_spec", lambda name: None if name == "timm" else find_spec("json"))
    with pytest.raises(
        Unsupported, match=r'needs timm: in the clone, pip install -c constraints.txt "\.\[networks\]"$'
    ):
        case("sa", "resnet18_os32", (1, 3, 64, 64)).build()


def test_a_slot_checks_nothing_else() -> None:
    slot = Slot(nn.Conv2d(4, 4, 1), 4, "net")
    assert slot(torch.randn(1, 4, 2, 2)).shape == (1, 4, 2, 2)


def test_the_networks_are_listed(command: Callable[..., Done]) -> None:
    lines = command("list", "--networks").stdout.splitlines()
    assert [line.split()[0] for line in lines] == networks.names()
    assert all(", 3, " in line for line in lines)


def test_the_example_of_the_page_is_a_network() -> None:
    example = Path(__file__).parents[3] / "examples" / "my_network.py"
    run = case("sa", f"{example}:my_network", (1, 3, 128, 128)).build()
    assert run(torch.randn(1, 3, 8, 8)).shape == (1, 10)


@pytest.mark.processes
def test_a_comparison_in_a_network_ranks_modules_alone(command: Callable[..., Done], tmp_path: Path) -> None:
    options = ("--shape", "1,3,16,16", "--processes", 1, "--sample-time", 0.01, "--out", tmp_path / "run")
    done = command("compare", "linear", "--modules", "sa", "--network", SMALL, *options)
    assert done.returncode == 0, done.stderr
    assert "What a module adds to small" in done.stdout
    assert "identity" not in done.stdout.partition("What a module adds")[0]
