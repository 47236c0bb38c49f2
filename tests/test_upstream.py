"""The defects of docs/upstream.md are there: a test fails where the installed version has mended one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import need_torchvision

PAGE = Path(__file__).resolve().parents[1] / "docs" / "upstream.md"
SHOWN = re.findall(
    r"^## ([^\n]+)\n\n[^\n]+\n\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def _shown(title: str, code: str) -> object:
    return pytest.param(
        code, id=title, marks=[pytest.mark.extra("networks")] * bool(re.search("timm|torchvision", code))
    )


@pytest.mark.long
@pytest.mark.parametrize("code", [_shown(*each) for each in SHOWN])
def test_a_defect_is_there(code: str, tmp_path: Path) -> None:
    if re.search("timm|torchvision", code):
        need_torchvision()
    if "torch.compile" in code and not shutil.which("g++"):
        pytest.skip("the compiled code needs g++")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"mended? {done.stderr}"


def test_each_defect_of_the_list_has_its_code() -> None:
    titles = re.findall(r"^\| \[(.+?)\]\(#", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(titles) == len(SHOWN) > 0
