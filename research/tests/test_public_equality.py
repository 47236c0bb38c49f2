"""Two blocks are the same in float64, or the row says how far apart they are; a class is read without its file."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import public_equality
from public_equality import Form

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
    monkeypatch.setattr(public_equality, "commit_of", lambda repository: f"of {repository}")
    (tmp_path / "eca").mkdir()
    (tmp_path / "eca" / "scale.py").write_text(ECA, encoding="utf-8")


def form(**settings: object) -> Form:
    def make() -> object:
        return public_equality.classes("eca/scale.py", "Scale").Scale(**settings)

    return Form("eca", "eca/scale.py", "Scale", make, 8, ((3, 4), (1, 2)))


def test_the_same_block_is_found_equal() -> None:
    row = public_equality.compared(form())
    assert (row["commit"], row["maps"], row["parameters"], row["public_parameters"]) == ("of eca", "3x4 1x2", 3, 3)
    assert all(float(row[f"{what}_{images}"]) < 1e-15 for what in ("output", "gradient") for images in (1, 2))


def test_a_block_of_other_numbers_is_told_by_how_much() -> None:
    row = public_equality.compared(form(factor=1.01))
    assert all(1e-4 < float(row[f"{what}_{images}"]) < 3e-2 for what in ("output", "gradient") for images in (1, 2))


def test_parameters_that_ours_lacks_end_the_command() -> None:
    with pytest.raises(SystemExit, match=r"Scale: \['inner.bias'\] is none of ours"):
        public_equality.compared(form(extra=True))
