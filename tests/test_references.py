"""References: a file's object is that object, also where its name is a key of the registry."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ctxbench
from ctxbench import api, registry
from ctxbench.base.errors import UsageError
from ctxbench.model.read_suite import load
from ctxbench.registry.reference import Reference

Command = Callable[..., Any]
NAMES = registry.names()
KEYS = [*NAMES, "identity"]
# A 3x3 convolution of 8 channels: 8 * 8 * 9 + 8 parameters; at 1x8x6x5 their products are 576 * 30.
PARAMS, MACS, SHAPE = 584, 17_280, "1,8,6,5"


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a class for each key of the registry, named as the key is."""
    path = tmp_path_factory.mktemp("names") / "mine.py"
    body = "    def __init__(self, channels):\n        super().__init__(channels, channels, 3, padding=1)\n"
    classes = (f"class {key}(nn.Conv2d):\n{body}" for key in KEYS)
    path.write_text("from torch import nn\n\n\n" + "\n\n".join(classes))
    return path


@pytest.mark.parametrize(
    ("text", "source", "name"),
    [
        ("se", "", "se"),
        ("mine.py:se", "mine.py", "se"),
        ("a/b/mine.py:Block", "a/b/mine.py", "Block"),
        ("package.module:Block", "package.module", "Block"),
        ("C:/a/mine.py:Block", "C:/a/mine.py", "Block"),
        ("mine.py", "mine.py", ""),
    ],
)
def test_a_text_is_a_key_or_an_object_of_a_source(text: str, source: str, name: str) -> None:
    found = Reference.parse(text)
    assert (found.source, found.name, found.said_by) == (source, name, "")
    assert found.is_key == (not source)
    assert str(found) == text or not name


def test_a_reference_knows_the_file_that_says_it(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('title = "x"\nmodules = ["se"]\n[axes]\nshape = [1, 8, 6, 5]\n')
    suite = load(str(path))
    assert suite.reference("mine.py:Block") == Reference("mine.py", "Block", str(path))
    chosen = load(str(path), api.overrides_of(modules=["mine.py:Block"], conditions={}))
    assert chosen.reference("mine.py:Block").said_by == ""


@pytest.mark.parametrize("key", KEYS)
def test_a_class_called_as_a_key_is_not_that_keys_module(mine: Path, key: str) -> None:
    entry, own = registry.get(f"{mine}:{key}"), registry.get(key)
    assert (entry.key, entry.reference, entry.file) == (f"mine.{key}", f"{mine}:{key}", str(mine))
    assert entry.params is None
    assert entry.paper == ""
    assert (own.key, own.reference.partition(".")[0]) == (key, "ctxbench")
    for named, other in ((entry, own), (own, entry)):
        assert registry.means(named.key, named.key, named.reference)
        assert registry.means(named.reference, named.key, named.reference)
        assert not registry.means(named.key, other.key, other.reference)
        assert not registry.means(named.reference, other.key, other.reference)
    # What show, memory, predict, profile and the metrics of a run build.
    case = api.case_of(f"{mine}:{key}", None, shape=(1, 8, 6, 5))
    assert sum(each.numel() for each in case.build().parameters()) == PARAMS
    assert case.sources == {f"mine.{key}": str(mine)}


@pytest.mark.processes
def test_a_run_has_both_rows_of_a_name(mine: Path, tmp_path: Path) -> None:
    names = [f"{mine}:{key}" for key in ("eca", "linear", "se")]
    asked: dict[str, Any] = {"shape": (1, 8, 6, 5), "metrics": ["params"], "static": True, "in_process": True}
    run = ctxbench.run("quick", modules=[*names, "eca", "linear"], out=tmp_path / "run", **asked)
    rows = run.frame.set_index("module")["params"]
    assert [rows[f"mine.{key}"] for key in ("eca", "linear", "se")] == [PARAMS] * 3
    assert {key: rows[key] for key in ("eca", "linear")} == {"eca": 3, "linear": 91}
    references = dict(zip(run.frame["module"], run.frame["reference"], strict=True))
    assert references["mine.se"] == f"{mine}:se"
    assert references["eca"].startswith("ctxbench.modules.eca:")


@pytest.mark.processes
def test_show_memory_predict_and_compare_take_the_class_of_the_file(
    command: Command, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = command("show", f"{mine}:se", "--shape", SHAPE).stdout
    assert f"{PARAMS}" in shown
    assert f"{MACS:,}" in shown
    assert "Squeeze" not in shown
    assert "mine.se" in command("memory", f"{mine}:se", "--mode", "infer", "--shape", SHAPE).stdout
    predicted = command("predict", f"{mine}:se", "--for", "a100-40gb", "--shape", SHAPE)
    assert "convolution" in predicted.stdout
    assert "sigmoid" not in predicted.stdout
    words = (f"{mine}:eca", f"{mine}:linear", "--modules", "eca,linear", "--metrics", "params,macs", "--shape", SHAPE)
    done = command("compare", *words, "--rank-by", "params", "--out", "run")
    assert "4 cases" in done.stderr
    with (tmp_path / "run" / "records.csv").open() as file:
        rows = {row["module"]: (row["params"], row["macs_matmul"]) for row in csv.DictReader(file)}
    assert rows["mine.eca"] == rows["mine.linear"] == (str(PARAMS), str(MACS))
    assert rows["eca"][0] == "3"
    assert set(rows) == {"mine.eca", "mine.linear", "eca", "linear"}


def test_settings_of_a_key_are_for_its_module_alone(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine.parent)
    path = tmp_path / "x.toml"
    path.write_text(
        f'title = "x"\nmodules = ["se", "{mine}:se"]\n[axes]\nshape = [1, 8, 6, 5]\n[hparams.se]\nreduction = 2\n'
    )
    assert {case.module: dict(case.hparams) for case in load(str(path)).cases()} == {
        "se": {"reduction": 2},
        "mine.se": {},
    }


def test_a_key_with_a_clash_of_the_decorator_is_still_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        "import ctxbench\nfrom torch import nn\n\n\n"
        "@ctxbench.register('se', title='Mine')\nclass A(nn.Identity):\n    pass\n"
    )
    with pytest.raises(UsageError, match="two modules are registered as 'se'"):
        registry.get(f"{path}:A")
