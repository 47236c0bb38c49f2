"""The registry: what it finds without importing, what it loads, what it refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

from ctxbench import registry
from ctxbench.base.errors import ModuleCodeError, UsageError

KEYS = ["a2", "acf", "apc", "da", "dm", "focused_linear", "ham_cd", "ham_nmf", "ham_vq", "linear", "sa"]
MODULE = """
from torch import nn
from ctxbench import register

@register({key!r}, title="Mine", paper="none", year=2026, family="test", params="C*k", macs="2*N")
class Mine(nn.Module):
    def __init__(self, channels: int, *, k: int = 3, mode: str = "a") -> None:
        super().__init__()
        self.channels, self.k = channels, k

    def forward(self, x):
        return x
"""


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove after a test what it has registered."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def write(folder: Path, key: str = "mine", name: str = "my_module.py") -> Path:
    path = folder / name
    path.write_text(MODULE.format(key=key), encoding="utf-8")
    return path


def test_lists_the_built_in_modules() -> None:
    assert [key for key in registry.names() if key in KEYS] == KEYS


def test_reads_entries_without_importing_torch() -> None:
    code = (
        "import sys; from ctxbench import registry; e = registry.get('ham_nmf');"
        "assert e.title == 'Ham (NMF)', e.title; assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_describes_hyperparameters_from_source() -> None:
    found = {p.name: (p.annotation, p.default) for p in registry.get("ham_cd").hyperparameters}
    assert found["rank"] == ("int", 64)
    assert found["steps"] == ("int", 6)
    assert found["temperature"] == ("float", 0.01)
    assert found["d"] == ("int | None", None)


def test_source_and_class_agree_on_every_built_in_module() -> None:
    for key in KEYS:
        entry = registry.get(key)
        live = registry._describe_class(entry.load(), entry.reference)
        assert [(p.name, p.default) for p in live.hyperparameters] == [
            (p.name, p.default) for p in entry.hyperparameters
        ]


def test_position_mixing_may_depend_on_a_hyper_parameter() -> None:
    entry = registry.get("gc")
    assert entry.mixes_positions()
    assert [entry.mixes_positions({"pooling": pooling}) for pooling in ("att", "avg")] == [True, False]
    assert [registry.get(key).mixes_positions() for key in ("sa", "se")] == [True, False]


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown module 'ham_nfm'; did you mean 'ham_nmf'\?"):
        registry.get("ham_nfm")


def test_a_clash_shows_both_origins(tmp_path: Path) -> None:
    path = write(tmp_path, key="sa")
    with pytest.raises(UsageError) as caught:
        registry.get(f"{path}:Mine")
    assert "sa.py" in str(caught.value)
    assert str(path) in str(caught.value)


def test_loads_a_class_from_a_file(tmp_path: Path) -> None:
    entry = registry.get(f"{write(tmp_path)}:Mine")
    assert (entry.key, entry.title, entry.year) == ("mine", "Mine", 2026)
    assert entry.closed_form("params", (2, 8, 3, 5), {"k": 4}) == 32
    assert entry.closed_form("macs", (2, 8, 3, 5)) == 60
    assert entry.closed_form("out_channels", (2, 8, 3, 5)) == 8
    assert entry.build(8, {"k": 5}).k == 5


def test_a_python_file_may_be_a_link_to_a_file_of_another_name(tmp_path: Path) -> None:
    (tmp_path / "stored").write_text("from torch import nn\n\n\nclass Linked(nn.Module):\n    pass\n")
    (tmp_path / "linked.py").symlink_to("stored")
    reference = f"{tmp_path / 'linked.py'}:Linked"
    assert registry.absolute(reference) == reference
    assert registry.get(reference).reference == reference


def test_loads_a_class_without_the_decorator_from_a_dotted_path() -> None:
    entry = registry.get("torch.nn:Identity")
    assert (entry.key, entry.family) == ("Identity", "other")


def test_loading_twice_keeps_one_entry() -> None:
    assert registry.get("ham_nmf").load() is registry.get("ham_nmf").load()


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("{path}:Mines", "did you mean 'Mine'"),
        ("{path}", "names no class"),
        ("{folder}/none.py:Mine", "there is no file"),
        ("no.such.module:Mine", "there is no module 'no.such.module'"),
        ("json:JSONDecoder", "no subclass of torch.nn.Module"),
    ],
)
def test_a_wrong_reference_gets_a_sentence(tmp_path: Path, reference: str, sentence: str) -> None:
    path = write(tmp_path)
    with pytest.raises(UsageError) as caught:
        registry.get(reference.format(path=path, folder=tmp_path))
    assert sentence in str(caught.value)


def test_an_exception_in_a_users_file_is_shown_with_its_own_traceback(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def f():\n    return nothing_here\nf()\n", encoding="utf-8")
    with pytest.raises(ModuleCodeError) as caught:
        registry.get(f"{path}:Mine")
    text = str(caught.value)
    assert f'File "{path}", line 2, in f' in text
    assert "NameError" in text
    assert "registry.py" not in text


@pytest.mark.parametrize(
    ("hparams", "sentence"),
    [
        ({"step": 3}, "did you mean 'steps'"),
        ({"steps": "many"}, "must be int"),
        ({"steps": 2.5}, "must be int"),
        ({"init": "zeros"}, "must be Literal"),
    ],
)
def test_hyperparameters_are_checked(hparams: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.get("ham_nmf").check_hparams(hparams)
    assert sentence in str(caught.value)


def test_an_integer_serves_where_a_float_is_declared() -> None:
    assert registry.get("ham_cd").check_hparams({"temperature": 1}) == {"temperature": 1.0}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("class Broken(:", "invalid syntax"),
        ("@register(KEY)\nclass Broken: pass", "all literals"),
        ("# \udcff", "can't decode byte"),
    ],
)
def test_a_built_in_file_that_cannot_be_read_is_a_broken_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    folder = tmp_path / "some_modules"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "broken.py").write_bytes(source.encode(errors="surrogateescape"))
    (folder / "whole.py").write_text('@register("whole", title="Whole")\nclass Whole: pass\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "BUILT_IN", "some_modules")
    broken, whole = registry._scan_built_in()
    assert (broken.key, whole.key, whole.broken) == ("broken", "whole", None)
    assert broken.broken is not None
    assert reason in broken.broken


def test_a_file_may_import_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "beside_it.py").write_text("WIDTH = 3\n", encoding="utf-8")
    (folder / "mine.py").write_text(
        "from torch import nn\nfrom beside_it import WIDTH\n\n\nclass Mine(nn.Module):\n    width = WIDTH\n",
        encoding="utf-8",
    )
    assert vars(registry.get(f"{folder / 'mine.py'}:Mine").load())["width"] == 3
    (folder / "torch.py").write_text("raise RuntimeError", encoding="utf-8")
    assert sys.path.index(str(folder)) == len(sys.path) - 1


def test_a_dotted_name_is_told_the_colon() -> None:
    with pytest.raises(UsageError, match=r"a class of a package is timm\.layers\.global_context:GlobalContext"):
        registry.get("timm.layers.global_context.GlobalContext")


def test_a_failing_import_shows_the_users_frames_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    (tmp_path / "package_of_mine.py").write_text("import nothing_like_this\n", encoding="utf-8")
    with pytest.raises(ModuleCodeError) as found:
        registry.get("package_of_mine:Mine")
    text = str(found.value)
    assert "package_of_mine.py" in text
    assert "ctxbench/registry" not in text
    assert "importlib" not in text


def test_a_torchvision_of_another_build_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text('raise RuntimeError("operator torchvision::nms does not exist")\n', encoding="utf-8")
    with pytest.raises(ModuleCodeError, match="hint: torchvision is built for another torch; install both from one"):
        registry.get(f"{file}:Mine")
