"""The registry: what it finds without importing, what it loads, what it refuses."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import in_fork

from ctxbench import registry
from ctxbench.base.errors import ModuleCodeError, UsageError
from ctxbench.model.hparams import flat, of_configs, parse
from ctxbench.registry.hyperparameter import Hyperparameter

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


def test_describes_hyperparameters_from_source() -> None:
    found = {p.name: (p.annotation, p.default) for p in registry.get("ham_cd").hyperparameters}
    assert found["rank"] == ("int", 64)
    assert found["steps"] == ("int", 6)
    assert found["temperature"] == ("float", 0.01)
    assert found["d"] == ("int | None", None)


def test_source_and_class_agree_on_every_built_in_module() -> None:
    for key in KEYS:
        entry = registry.get(key)
        loaded = entry.load()
        assert isinstance(loaded, type)
        live = registry._describe_class(loaded, entry.reference)
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
    ("annotation", "taken", "refused"),
    [
        ("int | None", None, "a"),
        ("'int'", 2, "a"),
        ("typing.Optional[typing.Literal['a', 2]]", 2, "b"),
        ("Literal['a'] | float", 2.5, "b"),
        ("tuple[int, ...]", (1, 2), ("a",)),
        ("list[typing.Union[int, str]]", [1, "a"], [2.5]),
    ],
)
def test_a_declared_type_is_that_which_is_written(annotation: str, taken: Any, refused: Any) -> None:
    parameter = Hyperparameter("x", annotation, None)
    assert parameter.parse(taken) == taken
    with pytest.raises(UsageError, match="; it must be "):
        parameter.parse(refused)


@pytest.mark.parametrize(
    "annotation",
    [
        *("open('mark', 'w')", '\'open("mark", "w")\'', "typing.Union[open('mark', 'w'), int]", "print", "np.ndarray"),
        *("Literal[open('mark', 'w')]", "slice", "9**9**9", "(" * 10_000, "int" + "|int" * 10_000),
    ],
)
def test_an_annotation_is_not_evaluated(annotation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Hyperparameter("x", annotation, None).parse("a") == "a"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("class Broken(:", "invalid syntax"),
        ("@register(KEY)\nclass Broken: pass", "all literals"),
        ("# \udcff", "the text is not UTF-8"),
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
    libraries = [*sys.path]
    monkeypatch.setattr("sys.path", [*libraries])
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "beside_it.py").write_text("WIDTH = 3\n", encoding="utf-8")
    (folder / "mine.py").write_text(
        "from torch import nn\nfrom beside_it import WIDTH\n\n\nclass Mine(nn.Module):\n    width = WIDTH\n",
        encoding="utf-8",
    )
    assert vars(registry.get(f"{folder / 'mine.py'}:Mine").load())["width"] == 3
    (folder / "torch.py").write_text("raise RuntimeError", encoding="utf-8")
    assert sys.path[: len(libraries)] == libraries
    assert str(folder) in sys.path[len(libraries) :]


def package(folder: Path, name: str) -> Path:
    """A project with `name/inner/block.py`, whose class takes its width from a relative and an absolute import."""
    inner = folder / name / "inner"
    inner.mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    (folder / "src" / f"{name}_helper").mkdir(parents=True)
    (folder / "src" / f"{name}_helper" / "depth.py").write_text("DEPTH = 5\n", encoding="utf-8")
    for init in (inner.parent, inner):
        (init / "__init__.py").touch()
    (inner.parent / "widths.py").write_text("WIDTH = 3\n", encoding="utf-8")
    block = inner / "block.py"
    block.write_text(
        f"from torch import nn\nfrom ..widths import WIDTH\nfrom {name}.widths import WIDTH as SAME\n"
        f"from {name}_helper.depth import DEPTH\n\n\nclass Mine(nn.Module):\n    sizes = WIDTH, SAME, DEPTH\n",
        encoding="utf-8",
    )
    return block


def test_a_file_of_a_package_is_loaded_as_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.modules", {**sys.modules})
    block = package(tmp_path, "blocks_of_mine")
    loaded = registry.get(f"{block}:Mine").load()
    assert vars(loaded)["sizes"] == (3, 3, 5)
    assert loaded.__module__ == "blocks_of_mine.inner.block"
    assert registry.get(f"{block}:Mine").load() is loaded


def test_a_package_whose_name_is_in_use_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    with pytest.raises(UsageError, match=r"another one of that name is in use: .*rename the folder"):
        registry.get(f"{package(tmp_path, 'json')}:Mine")


@pytest.mark.parametrize("fault", ["import a_package_that_nobody_has", "[][1]", "from .inner.lost import gone"])
@pytest.mark.parametrize(
    ("own", "lacks"),
    [
        ("import torch\n", ""),
        ("from .. import other\n", ""),
        ("from . import near\n", ""),
        ("import alone_in_it.other\n", ""),
        ("import a_package_that_it_needs\n", "a_package_that_it_needs"),
        ("from .. import defined_by_the_package\n", "FAULT"),
        ("from . import defined_by_the_package\n", "FAULT"),
        ("from torch import nothing_of_this_name\n", "nothing_of_this_name"),
    ],
)
def test_a_file_is_loaded_without_the_package_that_fails_where_it_needs_nothing_of_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own: str,
    lacks: str,
    fault: str,
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.modules", {**sys.modules})
    inner = tmp_path / "alone_in_it" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text(f"{fault}\n")
    (inner.parent / "other.py").write_text("")
    (inner / "__init__.py").write_text("from .. import lost\n")
    (inner / "near.py").write_text("")
    (inner / "block.py").write_text(f"{own}from torch import nn\n\nclass Mine(nn.Conv2d): pass\n")
    reference = f"{inner / 'block.py'}:Mine"
    if lacks:
        of_fault = {"import": "a_package_that", "[][1]": "IndexError", "from": "lost"}[fault.partition(" ")[0]]
        with pytest.raises(ModuleCodeError, match=lacks.replace("FAULT", of_fault)):
            registry.get(reference)
        assert "is loaded without" not in capsys.readouterr().err
        return
    for _ in range(2):
        assert registry.get(reference).key == "Mine"
    assert capsys.readouterr().err.count("is loaded without the package alone_in_it, which fails: ") == 1


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("from .widths import WIDTH", r"its folder is no package; put an empty file __init__\.py"),
        ('raise RuntimeError("operator torchvision::nms does not exist")', "torchvision is built for another torch"),
    ],
)
def test_an_error_whose_cause_is_known_has_a_hint(tmp_path: Path, text: str, hint: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ModuleCodeError, match=f"hint: {hint}"):
        registry.get(f"{file}:Mine")


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


NEEDS_NMS = """
import torch
torch.library.register_fake("torchvision::nms")(lambda boxes, scores, threshold: boxes)
class Mine(torch.nn.Identity):
    pass
"""


@pytest.mark.processes
def test_what_imports_a_torchvision_for_cuda_is_imported_beside_a_torch_for_cpus(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(NEEDS_NMS, encoding="utf-8")
    assert in_fork(_key_of, f"{file}:Mine") == "Mine"


def _key_of(reference: str) -> str:
    return registry.get(reference).key


CONFIGS = """
import argparse
from dataclasses import dataclass, field
from typing import Optional

import torch
from pydantic import BaseModel
from torch import Tensor, nn


@dataclass
class Heads:
    heads: int = 8
    expand: float = 1.0


@dataclass
class Whole:
    attn: Heads = field(default_factory=lambda: Heads(expand=0.5))
    channels: int = 64
    more: Optional["Whole"] = None


class Bound(BaseModel):
    whole: Whole
    dim: int


class Model(BaseModel):
    dim: int
    width: int = 3


class Base(nn.Module):
    def made(self, channels, width):
        super().__init__()
        self.layer = nn.Conv2d(channels, int(width), 1)


class Optionally(Base):
    def __init__(self, channels: int, cfg: Optional[Heads] = None, *, bias: bool = False):
        cfg = cfg or Heads()
        self.made(channels, cfg.heads * cfg.expand)


class Given(Base):
    def __init__(self, channels: int, cfg: Heads = Heads(heads=5)):
        self.made(channels, cfg.heads * cfg.expand)


class Wide(Base):
    def __init__(self, config: Model):
        self.made(config.dim, config.width)


class Deep(Base):
    def __init__(self, cfg: Whole):
        assert cfg.more is None
        self.made(cfg.channels, cfg.attn.heads * cfg.attn.expand)


class Deeper(Base):
    def __init__(self, cfg: Bound):
        self.made(cfg.dim, cfg.whole.attn.heads * cfg.whole.attn.expand)


class Names(Base):
    def __init__(self, channels: int, args=argparse.Namespace(width=4, kind="a")):
        self.made(channels, args.width)
"""

DEEPER = {
    "cfg.whole.attn.heads": 8, "cfg.whole.attn.expand": 0.5, "cfg.whole.channels": 64, "cfg.whole.more": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "known", "hparams", "width"),
    [
        ("Optionally", {"cfg.heads": 8, "cfg.expand": 1.0, "bias": False}, {}, 8),
        ("Optionally", {"cfg.heads": 8, "cfg.expand": 1.0, "bias": False}, {"cfg.heads": 6, "bias": True}, 6),
        ("Given", {"cfg.heads": 5, "cfg.expand": 1.0}, {}, 5),
        ("Given", {"cfg.heads": 5, "cfg.expand": 1.0}, {"cfg.expand": 2.0}, 10),
        ("Wide", {"config.width": 3}, {"config.width": 7}, 7),
        ("Names", {"args.width": 4, "args.kind": "a"}, {"args.width": 9}, 9),
        ("Deep", {"cfg.attn.heads": 8, "cfg.attn.expand": 0.5, "cfg.more": None}, {}, 4),
        ("Deep", {"cfg.attn.heads": 8, "cfg.attn.expand": 0.5, "cfg.more": None}, {"cfg.attn.heads": 6}, 3),
        ("Deeper", DEEPER, {}, 4),
        ("Deeper", DEEPER, {"cfg.whole.attn.expand": 2.0}, 16),
    ],
)
def test_the_fields_of_a_config_are_hyper_parameters(
    tmp_path: Path, name: str, known: dict[str, Any], hparams: dict[str, Any], width: int
) -> None:
    path = tmp_path / "configs.py"
    path.write_text(CONFIGS, encoding="utf-8")
    entry = registry.get(f"{path}:{name}")
    assert entry.defaults == known
    layer: Any = entry.build(16, hparams).layer
    assert (layer.in_channels, layer.out_channels) == (16, width)
    wrong = next(iter(known))
    with pytest.raises(UsageError, match=f"did you mean '{wrong}'"):
        entry.check_hparams({f"{wrong}s": 3})


def test_a_setting_of_a_config_in_a_config_names_both() -> None:
    texts = ["cfg.attn.heads=4", "Mine.cfg.attn.bias=true", "cfg.dim=8", "sa.d=2"]
    assert of_configs(parse(texts), {"cfg", "cfg.attn"}) == {
        "": {"cfg.attn.heads": 4, "cfg.dim": 8},
        "Mine": {"cfg.attn.bias": True},
        "sa": {"d": 2},
    }
    assert flat({"cfg": {"attn": {"heads": 4}, "dim": 8}}) == {"cfg.attn.heads": 4, "cfg.dim": 8}


LAYOUTS = """
import torch
from torch import Tensor, nn


class Sizes(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x, H, W):
        return self.mixed(x.unflatten(1, (H, W)))

    def mixed(self, x):
        return (self.layer(x) * torch.arange(x.shape[2])[:, None]).flatten(1, 2)


class Size(Sizes):
    def forward(self, x, hw_shape):
        return super().forward(x, *hw_shape)


class Tokens(Sizes):
    def forward(self, x):
        return x + self.layer(x).mean(1, keepdim=True)


class First(Sizes):
    def forward(self, x):
        n, bsz, _ = x.size()
        return x + self.layer(x).mean(0, keepdim=True)


class Starred(Tokens):
    def forward(self, *args, mask=None):
        b, n, _, h = *args[0].shape, 4
        return super().forward(*args)


class Reading(Tokens):
    def forward(self, x):
        b, n, _ = x.shape
        assert self.layer.weight.sum().item() < 1e9
        return super().forward(x)


class Last(Sizes):
    def forward(self, x):
        B, H, W, C = x.shape
        return self.mixed(x).reshape(B, H, W, C)


class Map(Sizes):
    def forward(self, x):
        b, c, h, w = x.shape
        return self.layer(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b, c, h, w)


class Elementwise(Sizes):
    def forward(self, x):
        return x + 1
"""


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("Sizes", "[B, N, C], H, W"),
        ("Size", "[B, N, C], (H, W)"),
        ("Tokens", "[B, N, C]"),
        ("First", "[N, B, C]"),
        ("Starred", "[B, N, C]"),
        ("Reading", "[B, N, C]"),
        ("Last", "[B, H, W, C]"),
        ("Map", ""),
        ("Elementwise", ""),
    ],
)
def test_a_block_of_another_layout_is_made_one_of_maps(tmp_path: Path, name: str, takes: str) -> None:
    path = tmp_path / "layouts.py"
    path.write_text(LAYOUTS, encoding="utf-8")
    made = registry.get(f"{path}:{name}").build(6)
    assert getattr(made, "takes", "") == takes
    assert getattr(registry.get(f"{path}:{name}").build(32), "takes", "") == takes
    x = torch.randn(2, 6, 3, 5, generator=torch.Generator().manual_seed(0))
    y = made(x)
    block: Any = getattr(made, "block", made)
    values = torch.einsum("oc,bchw->bohw", block.layer.weight, x) + block.layer.bias[:, None, None]
    expected = {
        **dict.fromkeys(("Tokens", "First", "Starred", "Reading"), x + values.mean((2, 3), keepdim=True)),
        "Map": values,
        "Elementwise": x + 1,
    }.get(name, values * torch.arange(5))
    torch.testing.assert_close(y, expected)
