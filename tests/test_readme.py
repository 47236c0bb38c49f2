"""The README has short sentences with few numbers, no commit or date, and output that fits and is today's."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ctxbench import registry
from ctxbench.base.number import significant
from ctxbench.metrics.params import count_params

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES, MOST_WORDS, MOST_NUMBERS, WIDEST = 110, 25, 2, 80
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# A digit within a name is no number.
NAMES = re.compile(r"Table \d+|CITATION\.cff|Apache-2\.0")
NUMBER = re.compile(r"(?<![\w.,])\d[\w.,+]*")
# A sentence ends before the next one, which begins with a capital, a digit, code, bold text or a link.
END = re.compile(r"(?<=[.!?])(?:\*\*)? +(?=[A-Z0-9`*\[])")


def units(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables, as plain text in which code is one word."""
    text = re.sub(r"<!--.*?-->", "", CODE.sub("", text))
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|#])", text):
        for cell in paragraph.strip("| \n").split(" | "):
            plain = re.sub(r"`[^`]*`", "code", cell)
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
            yield re.sub(r"\s+", " ", re.sub(r"^(?:- |#+ )|\*", "", plain)).strip()


def sentences(text: str) -> list[str]:
    return [sentence for unit in units(text) for sentence in END.split(unit) if re.search("[a-z]{2}", sentence)]


def words(sentence: str) -> int:
    return len(re.findall(r"\w[\w.,'+-]*", sentence))


def numbers(sentence: str) -> int:
    return len(NUMBER.findall(NAMES.sub("", sentence)))


def too_much(text: str) -> list[str]:
    """Sentences with more words or numbers than a reader keeps."""
    return [each for each in sentences(text) if words(each) > MOST_WORDS or numbers(each) > MOST_NUMBERS]


def test_no_sentence_of_the_readme_has_too_many_words_or_numbers() -> None:
    assert len(sentences(TEXT)) > 100
    assert too_much(TEXT) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Of 4 gates 0 passed, and 4 could not tell.", 1),
        ("| a claim | 15 of 16 figures, 5 of which were fitted. Good. |", 1),
        ("- " + "so " * 25 + "long.", 1),
        ("- " + "so " * 24 + "short.", 0),
        ("At 48 x 48 it\nis 16 times as slow.", 1),
        ("**It is 1.9 times as fast.** It has 29 blocks of 42.", 0),
        ("In `float32` the T4 has [16 GB](a.md#123), as Table 3 says; 2.13.0+cpu is a version. 5 of 8 do.", 0),
    ],
)
def test_long_sentences_are_found_and_short_ones_are_not(text: str, found: int) -> None:
    assert len(too_much(text)) == found


def test_the_readme_is_short_and_its_output_fits() -> None:
    assert len(TEXT.splitlines()) <= MOST_LINES
    wide = [line for block in CODE.findall(TEXT) for line in block.splitlines() if len(line) > WIDEST]
    assert wide == []


def test_commits_and_dates_stand_behind_the_links() -> None:
    assert re.findall(r"\b20\d\d-\d\d(?:-\d\d)?\b|\bcommit [0-9a-f]{7}", TEXT) == []


@pytest.mark.plugin("compare")
@pytest.mark.plugin("macs")
@pytest.mark.plugin("memory")
@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_the_counted_columns_of_the_shown_comparison_are_todays(page: str) -> None:
    from ctxbench.plugins.macs.counter import count_macs
    from ctxbench.plugins.memory.predict import predict_peak

    text = (ROOT / page).read_text(encoding="utf-8")
    rows = re.findall(
        r"^\d +(?:> )?(\w+) +(?:yes)? +([\d.]+)(?: +[\d.]+)? +([\d.]+)(?: +[\d.]+)? +([\d.]+)", text, re.M
    )
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
