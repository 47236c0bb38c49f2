"""`ctxbench new`: its module meets the contract, and a module around a block of tokens works."""

from pathlib import Path

import pytest
from test_contract import CORE

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.cli.commands import template
from ctxbench.plugins.verify import contract
from ctxbench.plugins.verify.checks import CHECKS, run_checks
from ctxbench.plugins.verify.subject import Subject


def test_the_template_passes_as_it_is_and_is_never_overwritten(tmp_path: Path) -> None:
    reference = template.write(tmp_path / "my_module.py")
    assert reference.endswith("my_module.py:MyModule")
    assert len((tmp_path / "my_module.py").read_text().splitlines()) < 60
    with pytest.raises(UsageError, match="already exists and was not changed; choose another file name"):
        template.write(tmp_path / "my_module.py")
    entry = registry.get(reference)
    results = list(run_checks(Subject(entry, entry.load(), 16, {}, contract.SIZE), CORE))
    assert [result.name for result in results if result.outcome != "passed"] == []


def test_a_module_around_a_block_of_tokens_works_as_it_is(tmp_path: Path) -> None:
    code = "import torch\n\n\nclass Block(torch.nn.Linear):\n    def __init__(self, d):\n        super().__init__(d, d)"
    (tmp_path / "block_of_tokens.py").write_text(code, encoding="utf-8")
    (tmp_path / "around.py").write_text(template.around(f"{tmp_path / 'block_of_tokens.py'}:Block"), encoding="utf-8")
    entry = registry.get(f"{tmp_path / 'around.py'}:BlockOfMaps")
    (found,) = run_checks(Subject(entry, entry.load(), 8, {}, (11, 9)), [c for c in CHECKS if c.name == "reach"])
    assert found.mark == "local: 1 x 1"
    (tmp_path / "__init__.py").touch()
    assert "\nfrom .block_of_tokens import Block\n" in template.around(f"{tmp_path / 'block_of_tokens.py'}:Block")
    with pytest.raises(UsageError, match=r"--around block\.py is not path\.py:Class"):
        template.around("block.py")


@pytest.mark.parametrize(
    ("name", "class_name", "sentence"),
    [
        ("sa.py", None, "registry already has a module 'sa'"),
        ("mine", None, "is not a Python file"),
        ("/", None, "is not a Python file"),
        ("3d.py", None, "'3d' is not a valid name for a class"),
        ("mine.py", "a b", "'a b' is not a valid name for a class"),
        ('mi"ne.py', None, "letters, digits"),
        ("none/mine.py", None, "No such file"),
    ],
)
def test_the_template_refuses_with_a_sentence(tmp_path: Path, name: str, class_name: str | None, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        template.write(tmp_path / name, class_name)
