"""Hand-written prose of the docs explains; what a run found is filled in by docs/update.py."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [page for folder in (DOCS, DOCS / "suites", DOCS / "plugins") for page in sorted(folder.glob("*.md"))]
# What is made by code, and code, links, pictures, headings and tables.
NOT_PROSE = re.compile(
    r"<!-- table: .*?<!-- /table -->|^```.*?^```|<!--.*?-->"
    r"|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|^#[^\n]*$|^\|[^\n]*$|^ *\d+\. ",
    re.DOTALL | re.MULTILINE,
)
# What digits may be part of, everywhere.
KINDS = {
    "a format of numbers": r"b?float\d+|TF32|AVX512_BF16|SHA-256",
    "a product": r"\b(?:RTX )?[ABHLPTV]\d+\b|ResNet-\d+|FlashAttention-2|\bL2\b",
    "a version": r"(?:CUDA|cuDNN|PyTorch|Python|Ray|capability|torchprofile)\s\d[\d.]*(?:(?:, | or | to )\d[\d.]*)*",
    "a kernel or a map": r"\d+(?: x |x)\d+|\[[\d, ]+\]",
    "a level of statistics": r"(?:95|80) %(?= (?:confidence |of the time|\]? ?interval|band))|intervals are of 95 %",
    "a citation": r"[A-Z]{3,} \d{4}|, (?:19|20)\d\d\b|arXiv:[\d.]+|(?:section|equation|Table|Fig\.|request)\s[\d.]+",
    "an order or a power": r"O\([^)]*\)|\b\d+\^\d+|\bw0\b",
    "the year of an era": r"\b2020\b",
}
# Other numbers that no run has found, by page, under the reason why they may stand there.
EXCEPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "decided in the code or a suite, and tested there": {
        "gate-error-rates.md": (
            "4, 6, 9, 13, 19 and 28 pairs", "(1.5 %, never", "at most 2.5 % of all", "makes it 1.5 %",
            "two-sided error at 5 %",
        ),
        "plugins/verify.md": ("8 GiB",),
        "validation.md": ("have 5 %", "depthwise\nconvnet* depthwise ones 1 %"),
        "method.md": ("10 % of its cores", "1.08 times", "10 % of the cores", "90 % of the pass"),
        "plugins/predict.md": (
            "3 us", "takes 2 ", "than 8 %", "from 8 to 64", "1.28 standard",
        ),
        "plugins/check.md": ("at 1.25 times of it",),
        "sharing.md": ("3.3\ninches, 6.9 (the default), or your own from 3 to 20", "7 to 9 pt"),
        "plugins/recall.md": (
            "800 steps of 32 scenes", ": 300)", "decay 0.01", "0.003 or 0.01", "256 test scenes",
            "(80 % or more)", "Chance is 10 %",
        ),
    },
    "a fact of a format, a library, a data set or statistics": {
        "plugins/check.md": ("start at 0", "contain 1.", "miss 1 by chance"),
        "plugins/memory.md": ("x86-64", "512 bytes", "10.x", "above 64 channels"),
        "plugins/predict.md": ("and 5090 (networks)",),
        "sharing.md": ("Type 42", "contain 1."),
        "method.md": ("about 83 %",),
        "suites/precision.md": ("of 16 bits save",),
        "plugins/recall.md": ("1,797 images", "about 95 %"),
    },
}  # fmt: skip


def prose(text: str) -> str:
    """A page without what is not prose, and without what a kind explains."""
    text = NOT_PROSE.sub(" ", text)
    for kind in KINDS.values():
        text = re.sub(kind, " ", text)
    return text


def excepted(page: str) -> list[str]:
    return [phrase for pages in EXCEPTIONS.values() for phrase in pages.get(page, ())]


@pytest.mark.parametrize("page", [page.relative_to(DOCS).as_posix() for page in PAGES])
def test_no_page_says_by_hand_what_a_run_found(page: str) -> None:
    text = prose((DOCS / page).read_text(encoding="utf-8"))
    for phrase in excepted(page):
        assert phrase in text, f"an exception of {page} that the page does not need: {phrase}"
        text = text.replace(phrase, " ")
    left = [line.strip() for line in text.splitlines() if re.search(r"\d", line)]
    assert not left, f"{page} has a number that docs/update.py must fill in: {left}"


@pytest.mark.parametrize(
    "stale",
    [
        "In training `apc` is slower when compiled, by 2.5 times.",
        "The cheapest block that looks up is `efficient` (80 %).",
        "- ONNX Runtime runs all 29 modules, 33x [28, 39] as fast\n",
        "Passes are 13 % off in the median, and 81 % lie in their 80 % band.",
    ],
)
def test_a_finding_that_is_written_by_hand_is_found(stale: str) -> None:
    assert re.search(r"\d", prose(f"# compile\n\nNothing is measured.\n\n{stale}"))


def test_what_explains_may_have_digits() -> None:
    text = "## 3 steps\n1. In float32 at 64 x 64 (ICLR 2021, section 3.1), `K = 6`, its 95 % interval ([x](a.md#2)).\n"
    assert not re.search(r"\d", prose(text + "<!-- table: run -->\n9 of 9\n<!-- /table -->\n| by hand | 7 |\n"))


MOST_ON_A_PAGE = 3000


@pytest.mark.parametrize("page", [page.relative_to(DOCS).as_posix() for page in PAGES])
def test_a_page_is_short_enough_to_read(page: str) -> None:
    words = len((DOCS / page).read_text(encoding="utf-8").split())
    assert words <= MOST_ON_A_PAGE
