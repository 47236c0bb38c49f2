"""The defects of docs/upstream.md are there: a test fails where the installed version has mended one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import need_torchvision

ROOT = Path(__file__).resolve().parents[1]
SHOWN = sorted((ROOT / "examples" / "defects").glob("*.py"))
NETWORKS = ("swin", "maxvit")


def _shown(path: Path) -> object:
    return pytest.param(path, id=path.stem, marks=[pytest.mark.extra("networks")] * (path.stem in NETWORKS))


@pytest.mark.long
@pytest.mark.parametrize("path", [_shown(path) for path in SHOWN])
def test_a_defect_is_there(path: Path, tmp_path: Path) -> None:
    if path.stem in NETWORKS:
        need_torchvision()
    if path.stem == "compiled_softmax" and not shutil.which("g++"):
        pytest.skip("the compiled code needs g++")
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"mended? {done.stderr}"


def test_each_defect_of_the_list_has_its_code() -> None:
    page = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\(\.\./examples/defects/(\w+)\.py\)", page)) == [path.stem for path in SHOWN]
