"""The recipes of docs/plugins/check.md: their steps, run as a runner runs them, but for pip."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from test_trees import OWN_GIT, commit, git, new_repository

ROOT = Path(__file__).parents[3]
MODULE = """
from torch import nn


class MyContext(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x + self.mix(x)
"""
# What pip is asked for must be there.
PIP = """#!/bin/sh
echo "$@" >> "$PIP_LOG"
test "$1 $2" = "install -c" && test -f "$3" && case "$4" in torch) ;; *) test -f "$4/pyproject.toml" ;; esac
"""


def steps_of(language: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the shell commands of the recipe for GitHub or GitLab."""
    recipe = yaml.safe_load((ROOT / "examples" / f"gate-{language}.yml").read_text(encoding="utf-8"))
    if language == "github":
        job = recipe["jobs"]["gate"]
        return job["env"], [step["run"] for step in job["steps"] if "run" in step]
    return {**recipe["gate"]["variables"], "PIP_CACHE_DIR": "cache"}, recipe["gate"]["script"]


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("language", ["github", "gitlab"])
@pytest.mark.parametrize(("change", "code"), [(("x + ", "x  + "), 0), (("x + ", "x.gone + "), 4)])
def test_a_recipe_runs_as_it_is_copied(language: str, change: tuple[str, str], code: int, tmp_path: Path) -> None:
    tool, upstream, clone, programs = (tmp_path / name for name in ("tool", "upstream", "job/clone", "bin"))
    programs.mkdir()
    new_repository(tool, {"constraints.txt": "", "pyproject.toml": ""})
    new_repository(upstream, {"my_module.py": MODULE})
    git(tmp_path, "clone", "--quiet", str(upstream), str(clone))
    commit(clone, {"my_module.py": MODULE.replace(*change)})
    (programs / "pip").write_text(PIP)
    (programs / "ctxbench").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ctxbench "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)

    variables, steps = steps_of(language)
    path = f"{programs}:{Path(shutil.which('git') or '').parent}:/usr/bin:/bin"
    of_runner = {"GITHUB_BASE_REF": "main", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    environment = {**OWN_GIT, **variables, **of_runner, "PATH": path, "PIP_LOG": str(tmp_path / "pip.log")}
    environment |= {"CTXBENCH_REPOSITORY": str(tool), "HOME": str(tmp_path), "GIT_CONFIG_COUNT": "0"}
    codes = [
        subprocess.run(
            ["sh", "-e", "-c", step], cwd=clone, env=environment, capture_output=True, check=False
        ).returncode
        for step in steps
    ]
    assert codes == [*[0] * (len(steps) - 1), code]
    assert (tmp_path / "pip.log").read_text().splitlines() == [
        "install -c ../ctxbench/constraints.txt torch --no-deps --index-url https://download.pytorch.org/whl/cpu",
        "install -c ../ctxbench/constraints.txt ../ctxbench",
    ]
    assert {path.name for path in (clone / "gate").iterdir()} == {"junit.xml", "result.json"}
