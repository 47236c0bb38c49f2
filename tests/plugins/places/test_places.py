"""Places of networks: their inputs by name, in a YAML file, and at a part of a person's network."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from wrapped import Wrapped

import ctxbench
from ctxbench.base.errors import UsageError
from ctxbench.model.conditions import Shape
from ctxbench.model.metrics import quantity, read_number
from ctxbench.plugins.macs.tools.calls import Calls
from ctxbench.plugins.macs.tools.reading import reading
from ctxbench.plugins.places.child import inputs_of
from ctxbench.plugins.places.layers import maps_of_file
from ctxbench.plugins.places.places import inputs_at, known
from ctxbench.registry.reference import Reference
from ctxbench.registry.torchvision import with_torchvision

# Widths 0.5, at most 128 before that: 64, 128 -> 32, 64; 256 -> 64.
NET = """
nc: 3
scales:
  a: [1.0, 0.5, 128]
  n: [1.0, 0.25, 1024]
backbone:
  - [-1, 1, Conv, [64, 3, 2]]
  - [-1, 1, Conv, [128, 3, 2]]
  - [-1, 3, C2f, [128, True]]
  - [-1, 1, Conv, [256, 3, 2]]
  - [-1, 1, SPPF, [256, 5]]
head:
  - [-1, 1, nn.Upsample, [None, 2, "nearest"]]
  - [[-1, 2], 1, Concat, [1]]
  - [-1, 1, C3k2, [100]]
  - [-1, 1, MyBlock, [7]]
  - [-1, 1, Conv, [64, 3, 1]]
  - [[7, 4], 1, Detect, [nc]]
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net9.yaml"
    path.write_text(NET, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("at", "side", "shapes"),
    [
        ("yolo11n:P5", 640, {"yolo11n:P5": (1, 256, 20, 20)}),
        ("rtdetr-r18:all", 320, {f"rtdetr-r18:P{p}": (1, 256, 320 >> p, 320 >> p) for p in (3, 4, 5)}),
        ("resnet50:stage3", 224, {"resnet50:stage3": (1, 1024, 14, 14)}),
        ("swin_t:stage3", 224, {"swin_t:stage3": (1, 384, 14, 14)}),
    ],
)
def test_known_places_have_the_shapes_of_their_networks(at: str, side: int, shapes: dict[str, Shape]) -> None:
    found, told = inputs_at(at, side)
    assert found == shapes
    assert told == {"place_side": side, "place_names": {"x".join(map(str, s)): name for name, s in shapes.items()}}


@pytest.mark.parametrize(
    ("place", "maps"),
    [
        ("model.0", [(3, 1)]),
        ("model.2", [(64, 4)]),
        ("model.5", [(64, 8)]),  # 256 channels are cut to 128, then halved
        ("model.6", [(64, 4), (64, 4)]),
        ("model.7", [(128, 4)]),
        ("model.8", [(56, 4)]),  # 50, as a multiple of 8
        ("all", [(56, 4), (64, 8)]),
        ("P3", [(64, 8)]),
    ],
)
def test_maps_of_a_file_follow_from_its_layers(net: Path, place: str, maps: list[tuple[int, int]]) -> None:
    assert [(each.channels, each.stride) for each in maps_of_file(net, place).values()] == maps


def test_the_end_of_a_file_s_name_is_its_scale(net: Path) -> None:
    found, _ = inputs_at(f"{net.with_stem('net9n')}:model.2", 64)
    assert found == {"net9n.yaml:model.2": (1, 32, 16, 16)}


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("yolo11n:P7", r"unknown place 'P7' of yolo11n; at 640 pixels it has P3 \[1, 64, 80, 80\], P4 .*, and all"),
        ("yolo11q", "unknown network 'yolo11q'.*yolo11n.*my_net.yaml:model.10"),
        ("{net}:model.9", "model.8 of .* is MyBlock, whose output is not known"),
        ("{net}:model.11", "has no model.11: its layers are model.0 to model.10"),
        ("{net}:P6", r"unknown place 'P6'.*P3 \[64 channels, stride 8\]"),
        ("{net}:model.0", "no multiple"),
        ("{folder}/absent.yaml:P3", "absent.yaml"),
    ],
)
def test_a_place_that_is_not_known_is_a_sentence(net: Path, at: str, words: str) -> None:
    side = 640 if "multiple" not in words else 0
    words = words if side else "is not the side of an image"
    with pytest.raises(UsageError, match=words):
        inputs_at(at.format(net=net, folder=net.parent), side)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2", "is no YAML"),
        ("- 1", "has no lists backbone and head"),
        ("{backbone: 3, head: []}", "has no lists"),
        ("{backbone: [3], head: []}", "model.0 of .* is 3, not"),
        ("{backbone: [[5, 1, Conv, [8, 1]]], head: []}", "model.0 of"),
        ("{backbone: [[-1, 1, Conv, []], [-1, 1, Conv, [8]]], head: []}", "Conv has the arguments"),
        ("{backbone: [[-1, 1, Conv, [x]], [-1, 1, Conv, [8]]], head: []}", "Conv has the arguments"),
        ("{backbone: [[-1, 1, nn.Upsample, [null, 0]], [-1, 1, Conv, [8]]], head: []}", "has the arguments"),
        ("{scales: {n: 3}, backbone: [[-1, 1, Conv, [8]]], head: []}", "scales are not lists"),
        ("{scales: 3, backbone: [[-1, 1, Conv, [8]]], head: []}", "scales are not lists"),
    ],
)
def test_a_file_of_another_form_is_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=words):
        maps_of_file(path, "all")


OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.body = nn.Conv2d(8, 16, 3, 2, 1)
        self.head = Head()
    def forward(self, x):
        small = self.stem(x)
        maps = self.head(maps=[small, self.body(small)])
        return torch.nonzero(maps)  # no shape on the meta device

class Head(nn.Module):
    def forward(self, maps):
        return maps[0]

class Still(Net):
    def forward(self, x):
        return x

class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()

made = Net()
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own_net.py"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_part_of_a_network_is_asked_for_the_maps_that_it_gets(own: Path) -> None:
    assert inputs_of(Reference(str(own), "Net"), "body", 64) == [(1, 8, 32, 32)]
    assert inputs_of(Reference(str(own), "made"), "head", 64) == [(1, 8, 32, 32), (1, 16, 16, 16)]
    shapes, _ = inputs_at(f"{own}:Net:head", 32)  # in a process of its own
    assert shapes == {"own_net:Net:head": (1, 8, 16, 16), "own_net:Net:head[1]": (1, 16, 8, 8)}


@pytest.mark.parametrize(
    ("name", "part", "words"),
    [
        ("Net", "tail", r"'tail' \(known: body \[1, 8, 32, 32\], head \[1, 8, 32, 32\], stem \[1, 3, 64, 64\]\)"),
        ("Net", "", "unknown part of Net ''.*known: body"),
        ("Still", "body", "body of Still gets no map"),
        ("Nett", "body", "unknown network in .*'Nett'; did you mean 'Net'"),
        ("Wide", "body", "cannot be made: .*width.*name a function"),
        ("nn", "body", "cannot be made|makes no"),
    ],
)
def test_a_part_that_is_not_there_is_a_sentence(own: Path, name: str, part: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        inputs_of(Reference(str(own), name), part, 64)


def test_flops_by_ultralytics_are_twice_thop_s_of_a_small_image_scaled_by_its_area() -> None:
    """The small map at stride 32 is one position; what does not grow with the map is scaled all the same."""

    def forward(x: torch.Tensor, conv: nn.Module, linear: nn.Module) -> Any:
        """A product of tensors is added, which thop does not see."""
        return conv(x) * linear(x.mean((2, 3)))[:, :, None, None] + x @ x.transpose(2, 3) @ x

    c, positions = 8, 20 * 20
    for side, grown in ((20, 1), (80, 16)):
        calls = Calls(Wrapped(forward, nn.Conv2d(c, c, 1, bias=False), nn.Linear(c, c)), (1, c, side, side))
        assert reading("thop-at-32@0.1.1").count_in(calls, 640) == 2 * (c * c * grown + c * c) * positions


def test_a_block_that_does_not_take_the_small_map_is_counted_at_its_own() -> None:
    model = nn.Conv2d(4, 4, 3, bias=False)  # no padding: a map of one position is too small
    assert reading("thop-at-32@0.1.1").count_in(Calls(model, (1, 4, 20, 20)), 640) == 2 * 18 * 18 * 4 * 4 * 9


@pytest.mark.slow
def test_compare_at_a_place_counts_and_predicts(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"at": "yolo11n:P5", "imgsz": 64, "out": tmp_path / "run", "also_on": ["h200"]}
    found = ctxbench.compare("eca", "pool", **asked)
    rows = found.value.folder.rows()
    assert {(row["place"], row["device"]) for row in rows} == {("yolo11n:P5", "h200")}
    assert [row["channels"] for row in rows] == [256, 256]
    eca = next(row for row in rows if row["module"] == "eca")
    assert eca["place_flops"] == 2 * 256 * 5 * 4  # a convolution of 5 over 256 channels
    assert read_number(eca, quantity("place_flops")) is not None
    table = found.tables[0]
    assert table.title.startswith("yolo11n:P5: [1, 256, 2, 2]")
    assert {"memory_infer", "memory_train", "place_flops", "latency_infer"} <= {each.key for each in table.columns}


@pytest.mark.plugin("compare")
@pytest.mark.slow
def test_all_places_of_a_network_are_one_table_whose_ratios_are_within_a_place(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of `eca` has 3, 5 and 5 weights; `lka` has 3 C^2 + 79 C parameters."""
    monkeypatch.setenv("COLUMNS", "300")
    options = ("--imgsz", 64, "--rank-by", "params", "--metrics", "params,macs", "--out", tmp_path / "run")
    done = command("compare", "eca,lka", "--at", "yolo11n", *options)
    assert "yolo11n: float32, t4" in done.stdout
    rows = [line for line in done.stdout.splitlines() if re.match(r"P\d \[[^]]*\] +[12] ", line)]
    places = [f"P{p} [1, {c}, {s}, {s}]" for p, c, s in ((3, 64, 8), (4, 128, 4), (5, 256, 2))]
    assert [row.split()[:8] for row in rows[::2]] == [[*place.split(), "1", ">", "eca"] for place in places]
    ratios = [(3 * c * c + 79 * c) / own for c, own in ((64, 3), (128, 5), (256, 5))]
    found = [re.search(r"23\] +\S+ +(\S+)", row) for row in rows[1::2]]
    assert [each and each[1] for each in found] == [f"{ratio:.0f}" for ratio in ratios]
    assert [line for line in done.stdout.splitlines() if "Pareto front" in line] == [
        f"{place}: On the Pareto front: eca." for place in places
    ]
    assert "no other row of its place is known" in done.stdout


PAGE = Path(__file__).parents[3] / "docs" / "plugins" / "places.md"
QUESTIONS = re.findall(
    r"^\| .*\]\(https://.* \| `ctxbench (.*)` \| .*`([0-9.,]+)`.* \|$", PAGE.read_text("utf-8"), re.M
)


@pytest.mark.plugin("compare", "show")
@pytest.mark.slow
@pytest.mark.drawn("places", "compare", "macs")
@pytest.mark.parametrize(("arguments", "figure"), QUESTIONS, ids=[asked for asked, _ in QUESTIONS])
def test_the_page_s_answers_to_questions_are_those_of_the_commands(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, figure: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    out = ("--out", tmp_path / "run") if arguments.startswith("compare") else ()
    done = command(*arguments.split(), *out)
    assert done.returncode == 0
    assert figure in done.stdout.split()


def test_the_page_answers_five_questions() -> None:
    assert len(QUESTIONS) == 5


@pytest.mark.plugin("compare")
@pytest.mark.parametrize(
    ("asked", "words"),
    [({"at": "yolo11n", "shape": (1, 8, 4, 4)}, "leave out --shape"), ({"imgsz": 64}, "--imgsz goes with --at")],
)
def test_compare_takes_a_place_or_a_shape(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ctxbench.compare("eca", **asked)


@pytest.mark.plugin("choose")
@pytest.mark.slow
def test_choose_at_a_place_keeps_to_a_time() -> None:
    asked: dict[str, Any] = {"at": "yolo11x:P3", "modules": ["eca", "lka"], "mode": "infer"}
    found = ctxbench.choose(None, "t4", within_ms=2.0, **asked)
    assert {each.case.module: each.slow for each in found.value} == {"eca": "", "lka": "above 2 ms"}
    assert found.value[0].times["t4"].high < 2 < found.value[1].times["t4"].low
    assert "yolo11x:P3: [1, 384, 80, 80]" in str(found.parts[0])
    for wrong in ({"shape": None}, {"shape": (1, 8, 4, 4), "at": "yolo11n"}, {"shape": (1, 8, 4, 4), "imgsz": 64}):
        with pytest.raises(UsageError, match=r"--at"):
            ctxbench.choose(device="t4", **wrong)
    with pytest.raises(UsageError, match="--within-ms"):
        ctxbench.choose(None, "t4", within_ms=0, **asked)


@pytest.mark.extra("detectors")
@pytest.mark.parametrize("name", [name for name in known() if name.startswith("yolo")])
def test_known_maps_are_those_of_the_files_that_they_name(name: str) -> None:
    import ultralytics

    (path,) = (Path(ultralytics.__file__).parent / "cfg" / "models").glob(f"*/{name[:-1]}.yaml")
    assert maps_of_file(path.with_stem(name), "all") == known()[name]


@pytest.mark.extra("networks")
@pytest.mark.parametrize("name", ["resnet50", "swin_t"])
def test_known_maps_are_those_of_the_stages_of_torchvision(name: str) -> None:
    def stages() -> list[nn.Module]:
        import torchvision

        model = getattr(torchvision.models, name)(weights=None).eval()
        own = [getattr(model, f"layer{n}") for n in (1, 2, 3, 4)] if name == "resnet50" else model.features[1::2]
        return [model, *own]

    model, *own = with_torchvision(stages)
    maps: list[Shape] = []
    for each in own:
        each.register_forward_hook(lambda layer, given, made: maps.append(tuple(made.shape)))
    model.to("meta")(torch.empty(1, 3, 64, 64, device="meta"))
    if name == "swin_t":  # channels last
        maps = [(b, c, h, w) for b, h, w, c in maps]
    assert maps == [(1, each.channels, 64 // each.stride, 64 // each.stride) for each in known()[name].values()]
