"""Finds the packages of ctxbench/, and those beside it by the names that they install under; pyproject.toml has the rest."""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

config = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))
folders = config["tool"]["setuptools"]["package-dir"]
found = [
    name if part == "" else f"{name}.{part}"
    for name, folder in folders.items()
    for part in ["", *find_packages(folder)]
]
setup(packages=sorted(found))
