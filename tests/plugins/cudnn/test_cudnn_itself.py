"""The installed cuDNN, where there is one, beside what version 9.19 answered.

`cards-9.19.csv` has answers for four cards. The first 57 were had by another program, which asked about 777
convolutions of the blocks on an H200 and an A100 and about 535 on a T4; all were equal, and each 37th stands there. The
others are of kinds that blocks lack: channels last, groups, one and three dimensions, and a transposed one's stride.
"""

from pathlib import Path
from typing import Any

import pytest
from test_cudnn_choice import SHAPES, known, rows

from ctxbench.plugins.cudnn.ask import FOLDER_ENV, Answers, ask
from ctxbench.plugins.cudnn.library import CudnnChoice, CudnnConvolution

TABLE = Path(__file__).with_name("cards-9.19.csv")
# One in so many convolutions is asked about.
EVERY = 29


@pytest.mark.extra("cudnn")
def test_the_installed_library_answers_as_it_did_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_ENV)
    some = {asked: choice for _, asked, choice in known()[::EVERY]}
    assert answers("h200", list(some)).choices == some


@pytest.mark.extra("cudnn")
@pytest.mark.parametrize("card", ["h200", "a100-sxm-80gb", "rtx-a6000", "t4"])
def test_the_installed_library_answers_for_each_card_and_kind(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_ENV)
    known = {asked_of(row): (row["engine"], row["bytes"]) for row in rows(TABLE) if row["card"] == card}
    found = answers(card, list(known)).choices
    choices = {asked: each for asked, each in found.items() if isinstance(each, CudnnChoice)}
    assert {asked: (str(each.engine), str(each.bytes)) for asked, each in choices.items()} == known


def test_the_table_has_each_kind() -> None:
    found = [asked_of(row) for row in rows(TABLE)]
    kinds = (
        [each.last for each in found],
        [len(each.image) == 5 for each in found],
        [each.image[2] == 1 for each in found],
    )
    assert [sum(kind) for kind in kinds] == [48, 24, 34]
    assert len(found) == 201


def answers(card: str, questions: list[CudnnConvolution]) -> Answers:
    found, *_ = ask(card, questions)
    if not found.version.startswith(("9.19.", "9.20.")):
        pytest.skip(f"cuDNN {found.version} may answer otherwise")
    return found


def asked_of(row: dict[str, str]) -> CudnnConvolution:
    shapes: dict[str, Any] = {key: tuple(map(int, row[key].split("x"))) for key in SHAPES}
    flags: dict[str, Any] = {key: row[key] == "True" for key in ("tf32", "last")}
    return CudnnConvolution(row["turn"], **shapes, dtype=row["dtype"], **flags)
