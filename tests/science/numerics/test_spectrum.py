"""Energy and gain worked by hand; what the metric says of a ham, of the identity and of bad inputs."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from judge import findings
from report_data import add, new_run, record
from test_numeric_metrics import computed_by

import ctxbench
from ctxbench.model.conditions import Shape
from ctxbench.report.figures.style import styled
from ctxbench.report.panels import panels_of
from ctxbench.report.run_data import open_run
from ctxbench_science.numerics import figure as figure_ranks
from ctxbench_science.numerics import spectrum
from ctxbench_science.numerics.decomposition import low_rank_map

SMALL: Shape = (1, 16, 8, 8)


def computed(module: str, shape: Shape = SMALL, **hparams: Any) -> dict[str, Any]:
    return computed_by(spectrum.compute, module, shape, **hparams)


def test_energy_and_gain_worked_by_hand() -> None:
    assert spectrum.accumulated(torch.tensor([3.0, 2.0, 1.0])) == pytest.approx([9 / 14, 13 / 14, 1])
    clean = torch.zeros(1, 2, 2)
    assert spectrum.gain(torch.full((1, 2, 2), 10.0), torch.full((1, 2, 2), 1.0), clean) == pytest.approx(20)


def test_the_truncated_svd_is_exact_at_the_rank_of_the_signal() -> None:
    clean, noisy = (each.flatten(2) for each in low_rank_map((1, 24, 10, 9)))
    torch.testing.assert_close(spectrum.truncated(clean, 8), clean)
    values = torch.linalg.svdvals(noisy[0])
    error = (noisy - spectrum.truncated(noisy, 5)).norm().item()
    assert error == pytest.approx(values[5:].square().sum().sqrt().item())


def test_the_identity_changes_nothing_and_has_no_gain() -> None:
    found = computed("linear")
    assert found["spectrum_rank_out"] == found["spectrum_rank_in"] > found["spectrum_rank_clean"]
    assert found["spectrum_energy_out"] == found["spectrum_energy_in"] < found["spectrum_energy_clean"]
    assert found["spectrum_energy_clean"] == pytest.approx(1)
    curves = json.loads(found["spectrum_energies"])
    assert curves["out"] == curves["in"]
    assert len(curves["in"]) == 16
    assert curves["in"][7] == pytest.approx(found["spectrum_energy_in"], abs=1e-4)
    assert curves["clean"][7:] == [1.0] * 9
    assert found["gain_reason"] == "the module does not factor its input"
    assert "spectrum_gain" not in found


@pytest.mark.parametrize("ham", ["ham_nmf", "ham_cd", "ham_vq"])
def test_a_ham_concentrates_energy_and_recovers_the_signal(ham: str) -> None:
    found = computed(ham, (1, 32, 16, 16), rank=8)
    assert found["spectrum_energy_out"] > found["spectrum_energy_in"]
    assert found["spectrum_rank_out"] < found["spectrum_rank_in"]
    assert found["spectrum_gain"] > 1
    assert not math.isclose(found["spectrum_gain"], found["spectrum_gain_best"])


def test_d_of_the_breads_is_left_out_with_them() -> None:
    assert computed("ham_cd", d=8, rank=4)["spectrum_gain"] == computed("ham_cd", rank=4)["spectrum_gain"]


def test_inputs_that_are_too_large_and_ranks_that_are_too_high() -> None:
    found = computed("ham_cd", (1, 512, 64, 64))
    assert set(found) == {"spectrum_reason", "gain_reason"}
    assert found["spectrum_reason"] == "the input has more than 1,048,576 elements"
    assert computed("ham_cd", rank=4, without="ham")["gain_reason"] == "the module does not factor its input"
    with pytest.raises(ValueError, match="rank = 65 is more than the 64 columns"):
        computed("ham_cd", rank=65)


@pytest.mark.slow
def test_the_suite_runs_small_and_its_claims_are_decided(tmp_path: Path) -> None:
    quick = {"warmup_s": 0, "sample_s": 1e-6, "target": 0.5}
    run = ctxbench.run(
        "spectrum", modules=["linear", "sa", "ham_cd", "ham_nmf", "ham_vq"], shape=[(1, 16, 8, 8)], measure=quick,
        metrics=["spectrum"], out=tmp_path / "run", in_process=True,
    )  # fmt: skip
    assert run.frame["status"].eq("ok").all(), run.frame["message"].tolist()
    found = findings("spectrum", run.folder.frame())
    assert len(found) == 5
    assert found[1].text.endswith("within 5 %: 2 of 2 (sa 0.98, linear 1.00)")
    assert found[2].verdict == "supported"


def test_the_figure_has_a_line_for_each_module_and_a_point_for_each_setting(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    ranks = {"linear {}": (8.0, 6.0), 'ham_cd {"rank": 2}': (8.0, 2.0), 'ham_cd {"rank": 4}': (8.0, 5.0), "sa {}": None}
    for case, own in ranks.items():
        module, _, hparams = case.partition(" ")
        found = record(module)
        found.case, found.hparams, found.changed = case, hparams, " ".join(json.loads(hparams))
        found.take({"spectrum_rank_in": own[0], "spectrum_rank_out": own[1]} if own else {})
        add(folder, found)
    with styled():
        drawing = figure_ranks.ranks(panels_of([open_run(tmp_path / "run")]))
    (axes,) = (axes for axes in drawing.figure.axes if axes.axison)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["linear", "ham_cd"]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_gid()]
    assert points == [(6.0, 0), (2.0, 1), (5.0, 1)]
    assert "ham_cd rank=2: 8.00 to 2.00" in drawing.details.values()
