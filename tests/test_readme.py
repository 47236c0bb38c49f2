"""The README is short, has no commit or date, and output that fits and is today's."""

import html
import re
from pathlib import Path

import pytest
import torch

from ctxbench import registry
from ctxbench.base.number import significant
from ctxbench.metrics.params import count_params

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES, WIDEST = 110, 80
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def test_the_readme_is_short_and_its_output_fits() -> None:
    assert len(TEXT.splitlines()) <= MOST_LINES
    wide = [line for block in CODE.findall(TEXT) for line in block.splitlines() if len(line) > WIDEST]
    assert wide == []


def test_commits_and_dates_stand_behind_the_links() -> None:
    assert re.findall(r"\b20\d\d-\d\d(?:-\d\d)?\b|\bcommit [0-9a-f]{7}", TEXT) == []


def terminal_text(svg: str) -> str:
    """The lines of a terminal's picture."""
    lines: dict[str, str] = {}
    for x, y, length, quoted in re.findall(
        r'<text .*?x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)".*?>(.*?)</text>', svg
    ):
        text = html.unescape(quoted).replace("\xa0", " ")
        column = round(float(x) * len(text) / float(length))
        lines[y] = lines.get(y, "").ljust(column) + text
    return "\n".join(lines.values())


@pytest.mark.plugin("compare")
@pytest.mark.plugin("macs")
@pytest.mark.plugin("memory")
@pytest.mark.parametrize("page", ["docs/figures/compare.svg", "docs/index.md", "docs/tutorial.md"])
def test_the_counted_columns_of_the_shown_comparison_are_todays(page: str) -> None:
    from ctxbench.plugins.macs.counter import count_macs
    from ctxbench.plugins.memory.predict import predict_peak

    text = (ROOT / page).read_text(encoding="utf-8")
    text = terminal_text(text) if page.endswith(".svg") else text
    rows = []
    for is_own, name, cells in re.findall(r"^\d +(> )?(\w+) +(?:yes)? +(.*)$", text, re.M):
        numbers = re.findall(r"[\d.]+", cells)
        rows.append((name, *(numbers[:3] if is_own else numbers[:6:2])))
    assert [name for name, *_ in rows][:3] == ["MyContext", "linear", "ham_nmf"]
    shown = {name: cells for name, *cells in reversed(rows)}  # the first table's
    counts = {}
    for name in {*shown, "sa"}:
        entry = registry.get(f"{ROOT / 'examples' / 'my_module.py'}:MyContext" if name == "MyContext" else name)
        x = torch.empty(1, 64, 32, 32, device="meta")
        with torch.device("meta"):
            module = entry.build(64)
        peak = predict_peak(module, x, mode="train").peak_bytes
        counts[name] = (count_params(module) / 1e3, count_macs(module, x).macs / 1e6, peak / 2**20)
    assert shown == {name: [significant(count) for count in counts[name]] for name in shown}
    less = [significant(theirs / own) for theirs, own in zip(counts["sa"], counts["MyContext"], strict=True)]
    told = re.search(
        r"MyContext dominates sa on all four: (.*?)x.*?, (.*?)x fewer\s+MACs,\s+(.*?)x less", text, re.DOTALL
    )
    assert told is None or [*told.groups()] == less
