"""Construction of the block that was named: the argument for the width, the layout, and what is asked for."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from ctxbench import api, registry
from ctxbench.base.errors import UsageError
from ctxbench.model.case import Case
from ctxbench.model.hparams import of_one_module, parse
from ctxbench.model.read_suite import Overrides, load, restore
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.registry.layout import FIRST, LAST, SIZE, TOKENS

Command = Callable[..., Any]
FILE = Path(__file__).parent / "fixtures" / "constructed.py"

OWN = """from torch import nn


class Mine(nn.Conv2d):
    def __init__(self, channels, k=1):
        super().__init__(channels, channels, k, padding=k // 2)
"""


def built(name: str, channels: int, size: tuple[int, int], **hparams: Any) -> tuple[int, str]:
    """Parameters of a block, and the layout that it takes if it takes no maps."""
    made = registry.get(f"{FILE}:{name}").build(channels, hparams, size)
    return sum(each.numel() for each in made.parameters()), getattr(made, "takes", "")


@pytest.mark.parametrize(
    ("name", "channels", "size", "params"),
    [
        ("Affine", 3, (320, 320), 3 * 1024 * 9 + 1024 + 1024 * 1000 + 1000),
        ("Strided", 3, (224, 224), 3 * 32 * 9 + 32 + 32 * 32 * 9 + 32),
        ("Filters", 3, (224, 224), 3 * 384 * 256 + 384 + 384 * 384 + 384 + 384 * 10 + 10),
        ("Rate", 64, (32, 32), 2 * 64 * 16 + 16 + 64),
        ("Rate", 32, (32, 32), 2 * 32 * 8 + 8 + 32),  # its default width, 64, does not take 32 channels
        ("Scaled", 3, (64, 64), 618),
        ("Alone", 1, (1, 10), 121),
        ("Tied", 1, (1, 300), 10_000),
        ("AnyWidth", 32, (8, 8), 9 + 1),  # no width of 64: it takes maps of any width
        ("Cross", 64, (8, 8), 8_320),
        ("pool", 64, (8, 8), 36_928),
    ],
)
def test_the_number_of_channels_goes_to_no_argument_that_means_another_thing(
    name: str, channels: int, size: tuple[int, int], params: int
) -> None:
    assert built(name, channels, size) == (params, "")


@pytest.mark.parametrize(
    ("name", "hparams", "params"),
    [
        ("Strided", {"stride": 8}, 3 * 32 * 9 + 32 + 32 * 32 * 9 + 32),
        ("Strided", {"width": 3}, 3 * 3 * 9 + 3 + 3 * 3 * 9 + 3),
        ("Strided", {"width": "channels"}, 3 * 3 * 9 + 3 + 3 * 3 * 9 + 3),
        ("Filters", {"embed_dim": 48}, 3 * 48 * 256 + 48 + 48 * 48 + 48 + 48 * 10 + 10),
        ("Scaled", {"scale": 3}, 922),
        ("Passing", {"spatial_dims": 2, "in_channels": "channels", "ratio": 1}, 2 * (3 * 3 + 3)),
    ],
)
def test_every_argument_can_be_set_the_width_too(name: str, hparams: dict[str, Any], params: int) -> None:
    assert built(name, 3, (224, 224), **hparams) == (params, "")


@pytest.mark.parametrize(
    ("name", "size", "params", "takes"),
    [
        ("Memory", (32, 32), 4_096, TOKENS),
        ("Memory", (64, 64), 4_096, TOKENS),  # as many rows and columns as channels
        ("Last", (8, 8), 64 * 64 + 64 + 9 * 64 + 64, LAST),
        ("FixedTokens", (7, 7), 49 * 49 + 4_160, TOKENS),
        ("Sized", (6, 5), 64 * 64 * 9 + 64, SIZE),
        ("Halving", (8, 8), 128 + 9 * 64 * 64 + 64, LAST),  # which makes maps of another size
        ("Second", (8, 8), 4 * (64 * 64 + 64), FIRST),
        ("Named", (8, 8), 2 * (64 * 64 + 64), FIRST),
        ("Response", (8, 8), 64, LAST),  # as tokens [B, N, C] it would make [1, B, N, C]
    ],
)
def test_the_layout_is_found_by_trying_at_the_inputs_own_size(
    name: str, size: tuple[int, int], params: int, takes: str
) -> None:
    assert built(name, 64, size) == (params, takes)


@pytest.mark.parametrize(
    ("name", "hparams", "command", "params"),
    [
        ("Heads", {"num_heads": 4}, "--set num_heads=4", 4 * 64 * 64 + 4 * 64),
        ("Dims", {"spatial_dims": 2}, "--set spatial_dims=2", 4_192),
        ("Groups", {"groups": 4}, "--set groups=4", 4),
        ("InOut", {"oup": "channels"}, "--set oup=channels", 2 * 64 * 16 + 16 + 64),
        ("Windows", {"window": (4, 4)}, "--set 'window=(4, 4)'", 4_160),
    ],
)
def test_what_lacks_is_asked_for_with_a_command_that_works(
    name: str, hparams: dict[str, Any], command: str, params: int
) -> None:
    with pytest.raises(UsageError) as asked:
        built(name, 64, (8, 8))
    (needed,) = hparams
    assert str(asked.value) == (
        f"{name} needs a value for {needed}; this works: ctxbench show {shown(FILE)}:{name} --shape 1,64,8,8 {command}"
    )
    assert built(name, 64, (8, 8), **hparams)[0] == params


def test_a_block_that_turns_its_tokens_itself_takes_the_images_first() -> None:
    assert built("Second", 64, (8, 8), turns=True) == (4 * (64 * 64 + 64), TOKENS)


@pytest.mark.parametrize("name", ["Second", "Named"])
def test_attention_of_tokens_whose_images_are_second_relates_positions(name: str) -> None:
    model, x = api.case_of(f"{FILE}:{name}", {}, shape=(2, 64, 8, 8)).on_meta()
    positions, products = 2 * 64, 64 * 64 * {"Second": 4, "Named": 2}[name]
    assert count_macs(model, x).macs_matmul == positions * products + 2 * positions * 64 * 64


def test_a_class_of_torch_is_a_value_and_what_was_given_stands_in_the_command() -> None:
    with pytest.raises(UsageError) as asked:
        built("Normed", 64, (8, 8), norm_layer="nn.BatchNorm2d")
    command = "--set norm_layer=nn.BatchNorm2d --set heads=4"
    assert str(asked.value).endswith(f"show {shown(FILE)}:Normed --shape 1,64,8,8 {command}")
    params = 2 * 64 + 64 * 16 + 64
    given = of_one_module(["norm_layer=nn.BatchNorm2d", "heads=4"], "Normed")
    assert built("Normed", 64, (8, 8), **given)[0] == params
    call = registry.get(f"{FILE}:Normed").call(64, given, (8, 8))
    assert call.endswith("Normed(channels=64, norm_layer=BatchNorm2d, heads=4)")
    with pytest.raises(
        UsageError, match=r"needs a value for norm_layer, heads; this works: .* norm_layer=nn.BatchNorm2d"
    ):
        built("Normed", 64, (8, 8))


def test_a_block_of_two_inputs_is_told_so_with_its_arguments() -> None:
    reference = f"{shown(FILE)}:Asking"
    with pytest.raises(UsageError) as asked:
        built("Asking", 64, (8, 8))
    assert str(asked.value) == (
        "Asking needs a value for query_dim, and its forward takes q, k, more than a map: "
        f"ctxbench new --around {reference} prints a module to put around it"
    )


SETTINGS = {  # as a person types them: what the constructor gets
    "kernels=3,5": (3, 5),
    "kernels=(3, 5)": (3, 5),
    "kernels=[3, 5]": (3, 5),
    "kernels=(7,)": (7,),
    "act=None": None,
    "act=relu": "relu",
    "bias=False": False,
    "bias=false": False,
    "mode=same": "same",
    "shape=4,4": [4, 4],
    "shape=[[4, 4]]": [4, 4],
}


@pytest.mark.parametrize("text", SETTINGS)
def test_a_setting_reaches_the_constructor_as_python_has_it(text: str) -> None:
    name = text.partition("=")[0]
    case = api.case_of(f"{FILE}:Settings", of_one_module([text], "Settings"), shape=(1, 8, 6, 5))
    again = TypeAdapter(Case).validate_json(TypeAdapter(Case).dump_json(case))  # as another process gets it
    assert again.id == case.id
    entry = again.entry
    assert entry.check_hparams(again.hparams, 8) == {name: SETTINGS[text]}
    kernels: Any = SETTINGS[text] if name == "kernels" else (1, 3)
    params = sum(64 * kernel**2 + 8 * (name != "bias") for kernel in kernels)
    assert sum(each.numel() for each in again.build().parameters()) == params


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("kernels=3,5", [[3, 5]]),
        ("kernels=(3, 5)", [[3, 5]]),
        ("kernels=(3, 5),(1, 3)", [[3, 5], [1, 3]]),
        ("kernels=[[3, 5], [1, 3]]", [[3, 5], [1, 3]]),
        ("act=None,relu", [None, "relu"]),
        ("bias=true,false", [True, False]),
    ],
)
def test_a_suite_tells_several_values_from_one_of_several_numbers(text: str, chosen: list[Any]) -> None:
    reference, name = f"{FILE}:Settings", text.partition("=")[0]
    asked = api.overrides_of(modules=[reference], hparams=parse([text]), metrics=["params"], conditions={})
    suite = load("quick", asked)
    again = restore("quick", suite.path, suite.file.model_dump(mode="json"))
    for each in (suite, again):
        assert [case.hparams[name] for case in each.cases()] == chosen


@pytest.mark.processes
def test_a_pair_of_numbers_in_every_command(command: Command, tmp_path: Path) -> None:
    words = (f"{FILE}:Windows", "--shape", "1,8,8,8", "--set", "window=(4, 4)")
    shown = command("show", *words)
    assert (shown.returncode, "72" in shown.stdout) == (0, True)
    asked = ("--modules", "eca", "--metrics", "params,macs", "--rank-by", "params", "--out", tmp_path / "run")
    done = command("compare", *words, *asked)
    assert done.returncode == 0, done.stderr
    assert "Windows (window=[4, 4])" in done.stdout


@pytest.mark.processes
def test_one_bad_candidate_does_not_end_a_comparison_and_inference_alone_is_measured(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text("import a_package_that_nobody_has\n")
    bad = f"{tmp_path / 'bad.py'}:Mine"
    asked = ("--modules", "eca", "--metrics", "params,macs,memory", "--rank-by", "params", "--shape", "1,64,8,8")
    done = command("compare", bad, f"{FILE}:Frozen", *asked, "--out", tmp_path / "run")
    assert done.returncode == 1
    assert f"left out: {bad}: " in done.stderr
    assert "a_package_that_nobody_has" in done.stderr
    with (tmp_path / "run" / "records.csv").open() as file:
        rows = {row["module"]: row for row in csv.DictReader(file)}
    found = rows["Frozen"]
    assert (set(rows), found["status"], found["params"]) == ({"Frozen", "eca"}, "ok", "4160")
    assert found["macs"] == str(64 * 64 * 64)
    assert "inference_only" in found["notes"]
    call = f"{shown(FILE)}:{line_of('class Frozen')} Frozen(channels=64)"
    meta = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (found["built"], meta["built"][found["case"]]) == (call, call)
    assert done.stderr.count("built: ") == 1
    assert f"built: {call}" in done.stderr.partition("verifying")[0]
    assert command("report", tmp_path / "run", "--out", tmp_path / "report").returncode == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert f"built</th><td>constructed.py:{line_of('class Frozen')} Frozen(channels=64)" in page
    alone = command("compare", bad, *asked, "--out", tmp_path / "none")
    assert (alone.returncode, (tmp_path / "none").exists()) == (2, False)


def shown(path: Path) -> Path:
    """A file from the working folder, if it lies inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(FILE.read_text().splitlines(), 1) if line.startswith(text))


def test_the_first_line_says_the_call_that_was_built(command: Command) -> None:
    done = command("show", f"{FILE}:Strided", "--shape", "1,3,224,224", "--set", "stride=8")
    call = f"{shown(FILE)}:{line_of('class Strided')} Strided(stride=8, width=32)"
    assert done.stderr.splitlines()[0] == f"built: {call}"
    assert "reach" not in done.stdout  # nobody declared it
    assert f"{28 * 28 * (3 * 32 * 9 + 32 * 32 * 9):,}" in done.stdout


def test_a_name_that_is_passed_on_is_refused_by_the_constructor(command: Command) -> None:
    shape = ("--shape", "1,64,8,8", "--set", "spatial_dims=2", "--set", "in_channels=channels")
    done = command("show", f"{FILE}:Passing", *shape)
    call = f"{shown(FILE)}:{line_of('class Passing')} Passing(ratio=4, spatial_dims=2, in_channels=64)"
    assert done.stderr.splitlines()[0] == f"built: {call}"
    done = command("show", f"{FILE}:Passing", *shape, "--set", "colour=3")
    assert done.returncode == 2
    assert "got an unexpected keyword argument 'colour'" in done.stderr


def test_a_setting_goes_to_the_modules_that_name_it_else_to_those_that_pass_it_on() -> None:
    both = [f"{FILE}:Passing", f"{FILE}:Settings"]
    own = {"in_channels": 4, "spatial_dims": 2}
    given = load("compare", Overrides(modules=both, hparams={"": {**own, "mode": "same"}})).file.hparams
    assert given == {"Passing": own, "Settings": {"mode": "same"}}


@pytest.mark.processes
def test_a_run_says_once_what_each_block_of_ones_own_is_built_by(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    asked = (
        "--modules",
        f"{tmp_path / 'mine.py'}:Mine,eca",
        "--set",
        "Mine.k=1,3",
        "--shape",
        "1,8,4,4",
        "--shape",
        "1,8,8,8",
    )
    done = command("run", *asked, "--static", "--out", tmp_path / "run")
    told = [line.partition("mine.py:")[2] for line in done.stderr.splitlines()]
    assert told[:2] == ["4 Mine(channels=8, k=1)", "4 Mine(channels=8, k=3)"], done.stderr
    assert done.stderr.count("built: ") == 2
