"""Finds the packages: those in ctxbench/, and those beside it by the names that they install under."""

import tempfile
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

config = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))
folders = config["tool"]["setuptools"]["package-dir"]
inside = {name: [f"{name}.{each}" for each in find_packages(folder)] for name, folder in folders.items()}
# In an empty folder: what an earlier build left in build/ would go into the wheel.
with tempfile.TemporaryDirectory() as empty:
    setup(
        packages=[*inside, *(each for found in inside.values() for each in found)],
        options={"build": {"build_base": empty}},
    )
