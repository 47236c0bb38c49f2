"""Two blocks are the same in float64, or the row says how far apart they are; a class is read without its file."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import pandas as pd
import public_equality
import public_sources
import torch
from public_sources import Form, moved
from torch import Tensor

ECA = """
import a_package_that_nobody_has

class Scale(nn.Module):
    def __init__(self, factor=1.0, extra=False):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.factor = torch.tensor(factor, dtype=torch.float32)
        if extra:
            self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        assert self.factor.dtype == torch.float64
        means = x.mean((2, 3))[:, None]
        return x * torch.sigmoid(self.factor * self.conv(means)).transpose(1, 2)[..., None]
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERS", str(tmp_path))
    monkeypatch.setattr(public_equality, "version_of", lambda repository: f"of {repository}")
    (tmp_path / "eca" / ".git").mkdir(parents=True)
    (tmp_path / "eca" / "scale.py").write_text(ECA, encoding="utf-8")


def form(**settings: object) -> Form:
    def make() -> object:
        return public_sources.classes("eca/scale.py", "Scale").Scale(**settings)

    return Form("eca", "eca/scale.py", "Scale", make, 8, ((3, 4), (1, 2)))


def test_the_same_block_is_found_equal() -> None:
    row = public_equality.compared(form())
    assert (row["commit"], row["maps"], row["parameters"], row["public_parameters"]) == ("of eca", "3x4 1x2", 3, 3)
    assert all(float(row[f"{what}_{images}"]) < 1e-15 for what in ("output", "gradient") for images in (1, 2))
    assert all(float(row[f"differences_{who}"]) < 1e-8 for who in ("ours", "public"))


class Doubled(torch.autograd.Function):
    """The map itself, with twice its gradient."""

    @staticmethod
    def forward(context: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: object, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


def test_central_differences_tell_whose_gradient_is_wrong() -> None:
    wrong = replace(form(), call=lambda inner, x: inner(Doubled.apply(x)))  # type: ignore[no-untyped-call]
    row = public_equality.compared(wrong)
    assert float(row["output_1"]) < 1e-15
    assert float(row["gradient_1"]) > 0.1
    assert float(row["differences_ours"]) < 1e-8
    assert float(row["differences_public"]) > 0.1


def test_a_class_that_cannot_train_on_one_image_has_no_gradient_there() -> None:
    row = public_equality.compared(replace(form(), trains_one=False))
    assert (row["gradient_1"], row["differences_ours"]) == ("", "")
    assert float(row["gradient_2"]) < 1e-15


def test_names_are_moved_by_their_longest_part() -> None:
    names = moved(output="bottleneck", output__0="first.conv")
    ours = {"output.0.weight": torch.zeros(1), "output.10.weight": torch.ones(1), "outputs": torch.ones(2)}
    assert [*names(ours)] == ["first.conv.weight", "bottleneck.10.weight", "outputs"]


def test_new_rows_take_the_place_of_those_of_the_same_form() -> None:
    old = pd.DataFrame([public_equality.compared(form()) | {"date": "1"}, {"block": "se", "date": "1"}])
    new = public_equality.joined(old, pd.DataFrame([public_equality.compared(form()) | {"date": "2"}]))
    assert [*zip(new["block"], new["date"], strict=True)] == [("eca", "2"), ("se", "1")]


def test_a_block_of_other_numbers_is_told_by_how_much() -> None:
    row = public_equality.compared(form(factor=1.01))
    assert all(1e-4 < float(row[f"{what}_{images}"]) < 3e-2 for what in ("output", "gradient") for images in (1, 2))


def test_parameters_that_ours_lacks_end_the_command() -> None:
    with pytest.raises(SystemExit, match=r"Scale: \['inner.bias'\] is none of ours"):
        public_equality.compared(form(extra=True))
