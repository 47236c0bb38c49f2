"""The links of the docs lead somewhere, and the tutorial's module works."""

import re
from pathlib import Path

import pytest

from ctxbench.plugin import plugins

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "suites").glob("*.md")),
    *sorted((ROOT / "docs" / "plugins").glob("*.md")),
]


def anchors(page: Path) -> set[str]:
    """The addresses of a page's headings, as GitHub and Sphinx make them, and of its own marks."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\((.+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for path, heading in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        if not path.startswith(("http:", "https:")):
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name} links to {path}"
            assert not heading or heading in anchors(target), f"{page.name} links to {path}#{heading}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_import_of_an_example_works(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in re.findall(r"^(?:from|import) ctxbench.*$", "\n".join(blocks), re.MULTILINE):
        plugin = re.match(r"from ctxbench_science\.(\w+)", line)
        if not plugin or plugin[1] in plugins():
            exec(line, {})


def opening(text: str) -> list[str]:
    """The title of a page and its next three lines, as a reader sees them."""
    text = text.removeprefix("---\norphan: true\n---\n")
    return [line for line in text.splitlines() if line and not line.startswith("<!--")][:4]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if (ROOT / "docs") in page.parents], ids=lambda page: page.name
)
def test_a_page_opens_with_a_question_and_its_answer(page: Path) -> None:
    title, *answer = opening(page.read_text(encoding="utf-8"))
    assert "?" in title + answer[0], "the title or the next line is the question"
    assert any(line.startswith("**") for line in answer), "the answer is bold, and in the first three lines"


def test_the_module_in_the_tutorial_works_as_shown(tmp_path: Path) -> None:
    import torch

    from ctxbench import registry
    from ctxbench.metrics.params import count_params

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), re.DOTALL)
    (source,) = [block for block in blocks if "class MyContext" in block]
    assert source == (ROOT / "examples" / "my_module.py").read_text(encoding="utf-8")
    path = tmp_path / "my_module.py"
    path.write_text(source, encoding="utf-8")
    model = registry.get(f"{path}:MyContext").build(8)
    assert model(torch.ones(2, 8, 5, 6)).shape == (2, 8, 5, 6)
    # Two projections to 32 and one to 8 channels, with biases.
    assert count_params(model) == 2 * (8 * 32 + 32) + 8 * 8 + 8
