"""The site: the same Markdown as in the repository, the API from docstrings, and the reports as pages."""

from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent

project = "ctxbench"
author = "The ctxbench authors"
release = metadata.version("ctxbench")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "ctxbench"
root_doc = "contents"
exclude_patterns = ["report", "site"]
# Written by `make report`; served as they are.
html_extra_path = ["report"] if (DOCS / "report").is_dir() else []
myst_heading_anchors = 3
myst_all_links_external = False
autodoc_typehints = "description"
# Types of torch and pandas, which have sites of their own.
nitpicky = False
# Pages of the repository that the site does not hold.
OUTSIDE = ("../CITATION.cff", "../results/README.md", "../docs/")


def outside(app: Sphinx, name: str, source: list[str]) -> None:
    """Links to files outside of the docs lead to the repository's own text, which the site does not have."""
    for target in OUTSIDE:
        source[0] = source[0].replace(f"]({target}", f"](https://example.org/ctxbench/{target.removeprefix('../')}")


def setup(app: Sphinx) -> None:
    app.connect("source-read", outside)
