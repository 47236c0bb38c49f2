"""Files that a module's file needs, of all that Python loaded for it."""

from pathlib import Path

import pytest

from ctxbench.plugins.history.imports import needed

# A package whose `__init__` brings in the world, as those of timm and vit-pytorch do.
FILES = {
    "src/nets/__init__.py": "from .block import Block\nfrom .other import Other\nWIDTH = 3\n",
    "src/nets/block.py": "import torch\nfrom .helper import f\nfrom . import shapes\nimport nets.constants\n",
    "src/nets/helper.py": "def f():\n    from nets.late import g\n    return g\n",
    "src/nets/late.py": "",
    "src/nets/shapes.py": "from ..tools.sides import SIDES",
    "src/nets/constants.py": "",
    "src/nets/other.py": "import nets.unrelated",
    "src/nets/unrelated.py": "",
    "src/nets/named.py": "from nets import WIDTH\n",
    "src/nets/broken.py": "def f(:\n",
    "src/tools/__init__.py": "",
    "src/tools/sides.py": "",
}
OF_BLOCK = {"block", "helper", "late", "shapes", "constants"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_what_an_init_brings_in_beside_is_not_needed(root: Path) -> None:
    expected = {f"src/nets/{name}.py" for name in OF_BLOCK} | {"src/tools/sides.py"}
    assert needed(root, ["src/nets/block.py"], FILES) == expected


def test_a_name_of_an_init_needs_all_that_it_brings_in(root: Path) -> None:
    found = needed(root, ["src/nets/named.py"], FILES)
    names = {Path(each).stem for each in found}
    assert names == OF_BLOCK | {"named", "__init__", "other", "unrelated", "sides"}


def test_a_file_that_is_no_python_needs_all(root: Path) -> None:
    assert needed(root, ["src/nets/broken.py"], FILES) == {*FILES}
