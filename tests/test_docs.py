"""The docs print what the committed runs hold, and their links lead somewhere."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def update() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update", ROOT / "docs" / "update.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_in_the_docs_are_those_of_the_committed_runs(update: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "| Self-attention (SA)" in readme
    for page in update.pages():
        text = page.read_text(encoding="utf-8")
        assert update.updated(text) == text, f"{page.name} is not what `make report` writes"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_module_in_the_readme_works_as_shown(tmp_path: Path) -> None:
    import torch

    from ctxbench import registry
    from ctxbench.metrics.macs import count_macs
    from ctxbench.metrics.params import count_params

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (source,) = [block for block in blocks if "@register" in block]
    path = tmp_path / "my_module.py"
    path.write_text(source, encoding="utf-8")
    entry = registry.get(f"{path}:MyContext")
    shape = (2, 8, 5, 6)
    model = entry.build(8)
    assert model(torch.ones(shape)).shape == shape
    assert count_params(model) == entry.closed_form("params", shape) == 72
    assert count_macs(model, torch.ones(shape)).macs == entry.closed_form("macs", shape) == 144
