"""Colours and markers of modules and families: the same in all figures, and told apart in each sight."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray
from PIL import Image
from report_data import add, new_run, record, table3_run, with_timeline
from test_report_layout import built_in, drawing_of, legend_of, run_of

from ctxbench import registry
from ctxbench.report.figures.kinds import choose, write_figure
from ctxbench.report.figures.style import FAMILIES, OWN_COLOURS, Look, looks, palette
from ctxbench.report.panels import panels_of
from ctxbench.report.run_data import open_run

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def test_families_are_as_recorded(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    for module in ("ham_nmf", "mine"):
        add(folder, record(module, family="as it was"))
    assert open_run(folder.path).frame["family"].tolist() == ["as it was", "as it was"]


def test_several_families_are_named_below_the_figure(tmp_path: Path) -> None:
    figure = drawing_of("cost", table3_run(tmp_path / "run")).figure
    assert legend_of(figure) == ["attention", "linear attention", "matrix decomposition"]
    assert legend_of(drawing_of("cost", run_of(tmp_path / "one", ["sa", "da", "mine"])).figure) == []


def test_every_family_of_the_registry_has_a_colour() -> None:
    assert set(built_in().values()) <= set(FAMILIES)


# Red, green, blue as a reader without one kind of cone sees them, from linear RGB: Machado, Oliveira and Fernandes, A
# physiologically-based model for simulation of color vision deficiency (2009), severity 1.
SIGHTS = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour: str, sight: str) -> NDArray[np.float64]:
    """CIE L*a*b* (D65) of an sRGB colour as it is seen."""
    part = np.array(to_rgb(colour))
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SIGHTS[sight]) @ linear, 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = np.array(to_xyz) @ seen / [0.95047, 1, 1.08883]
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def grey(colour: str) -> float:
    return float(np.dot([0.3, 0.59, 0.11], 255 * np.array(to_rgb(colour))))


def test_the_lab_of_this_test_is_right() -> None:
    assert lab("#ffffff", "full") == pytest.approx([100, 0, 0], abs=0.02)
    assert lab("#ff0000", "full") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)


def test_modules_differ_by_marker_or_in_every_sight_and_in_grey() -> None:
    shown = palette(built_in())
    assert len(shown) == len(built_in()) >= 29
    for one, other in itertools.combinations(shown.values(), 2):
        if one.marker == other.marker:
            assert abs(grey(one.colour) - grey(other.colour)) > 8
            assert min(np.linalg.norm(lab(one.colour, sight) - lab(other.colour, sight)) for sight in SIGHTS) > 10


def test_families_differ_in_every_sight() -> None:
    for one, other in itertools.combinations(FAMILIES.values(), 2):
        assert min(np.linalg.norm(lab(one.colour, sight) - lab(other.colour, sight)) for sight in SIGHTS) > 15


def test_a_module_keeps_its_look_beside_others_and_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry for entry in registry.entries() if entry.reference.startswith(registry.BUILT_IN)]
    alone = looks(entry.key for entry in entries)
    assert len({(look.colour, look.marker) for look in alone.values()}) == len(alone)
    assert looks(["ham_nmf", "mine"])["ham_nmf"] == alone["ham_nmf"]
    plug_in = replace(registry.get("sa"), key="a_plug_in", reference="package.module:Mine")
    monkeypatch.setattr(registry, "entries", lambda: [plug_in, *entries])
    families = {entry.key: entry.family for entry in sorted(registry.entries(), key=lambda e: e is plug_in)}
    assert palette(families) | alone == palette(families)
    assert palette(families)["a_plug_in"].colour in (FAMILIES["attention"].colour, alone["sa"].colour)


def test_a_module_outside_the_registry_has_a_colour_of_its_own() -> None:
    found = looks(["sa", "a2", "Mine", "Other"])
    assert len({look.colour for look in found.values()}) == 4
    assert found["Mine"] == looks(["Mine"])["Mine"] == Look(OWN_COLOURS[0], "*")
    assert not {found["Mine"].colour, found["Other"].colour} & {look.colour for look in FAMILIES.values()}
    assert list(found) == ["Mine", "Other", "a2", "sa"]
    assert palette({"mine": "a family of its own"}) == {}


def colours_of(axes: Axes) -> dict[str, str]:
    """Of the points, by the names beside them."""
    points = [line for line in axes.lines if line.get_marker() != "None"]
    found = zip(axes.get_yticklabels(), points, strict=True)
    return {text.get_text(): to_hex(line.get_color()) for text, line in found}


def test_own_modules_have_the_same_colours_in_all_figures(tmp_path: Path) -> None:
    path = with_timeline(run_of(tmp_path / "run", ["sa", "Mine", "Other"]), ["sa"])
    text = (path / "timeline.csv").read_text()
    rows = text.splitlines()[1:]
    others = [row.replace("sa ", f"{module} ", 1) for module in ("Mine", "Other") for row in rows]
    (path / "timeline.csv").write_text("\n".join([text.strip(), *others, ""]))
    expected = {name: look.colour.lower() for name, look in looks(["sa", "Mine", "Other"]).items()}
    assert colours_of(drawing_of("cost", path).figure.axes[0]) == expected
    areas = [axes.collections[0] for axes in drawing_of("memory", path).figure.axes if axes.axison]
    assert [to_hex(area.get_facecolor()[0]) for area in areas] == [expected[name] for name in ("sa", "Mine", "Other")]


def test_the_png_has_the_colours_of_the_families(tmp_path: Path) -> None:
    found = panels_of([open_run(table3_run(tmp_path / "run"))])
    (kind,) = choose(["pareto"], found)
    with Image.open(write_figure(found, kind, tmp_path, ["png"]).paths["png"]) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)
    for family in ("attention", "linear attention", "matrix decomposition"):
        wanted = 255 * np.array(to_rgb(FAMILIES[family].colour))
        assert (np.abs(pixels - wanted).max(axis=1) <= 4).sum() > 100  # the patch in the legend
