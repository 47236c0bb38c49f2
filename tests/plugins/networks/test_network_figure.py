"""The figure of MACs in a network."""

import json
from pathlib import Path

import pytest
from drawings import panels
from report_data import add, definition, new_run, record

from ctxbench.plugins.networks import figure as figure_network
from ctxbench.report.figures.style import styled

pytestmark = pytest.mark.slow  # many small cases, which take seconds together


def test_a_network_shows_what_a_module_adds_to_its_other_parts(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run", definition=definition(published=None))
    for module, macs in (("sa", 14), ("da", 50)):
        parts = json.dumps({"backbone": 80 * 10**9, "head": 20 * 10**9, "module": macs * 10**9})
        add(folder, record(module, "meta", network="net", network_parts=parts))
    with styled():
        drawing = figure_network.macs_of_networks(panels(folder.path))
    assert [text.get_text() for text in drawing.figure.axes[0].texts] == ["+14.0%", "+50.0%"]
