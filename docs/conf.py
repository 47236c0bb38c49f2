"""The site: the same Markdown as in the repository, and the reports as pages."""

import csv
import os
import re
import shutil
from importlib import metadata
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
TEMPLATES = DOCS.parent / "report" / "templates"
# How the columns of blocks.csv were obtained that are not predicted, by their first word.
ORIGINS = dict.fromkeys(("params", "macs"), "counted") | dict.fromkeys(
    ("cpu", "segment", "lookup", "phones"), "measured"
)
ORIGINS["gain"] = "published"
WORDS = {
    "macs": "MACs",
    "cpu": "CPU",
    "gain": "Published gain",
    "segment": "Recall, segment",
    "lookup": "Recall, lookup",
}
UNITS = {"k": "K", "g": "G", "mib": "MiB", "percent": "%", "targets": "of 3", "points": "points of mIoU"}

project = "ctxbench"
author = "The ctxbench authors"
project_copyright = f"2026, {author}"
release = metadata.version("ctxbench")
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "ctxbench"
root_doc = "index"
exclude_patterns = ["report", "site"]
# Written by `make report`; served as they are.
html_extra_path = ["report"] if (DOCS / "report").is_dir() else []
myst_heading_anchors = 3
myst_all_links_external = False
# A link to a page of the repository that the site does not hold.
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)*((?:docs/|results/|CITATION|CONTRIBUTING|examples/)[^)]*)\)")


def outside(app: Sphinx, name: str, source: list[str]) -> None:
    """Files outside of the docs are named with their path in the repository, because the site does not have them."""
    source[0] = OUTSIDE.sub(r"\1 (`\2` in the repository)", source[0])


def without(app: Sphinx, name: str, source: list[str]) -> None:
    """The pages of a plugin that is not here are named without a link, and have no entry in the sidebar."""

    def text(link: re.Match[str]) -> str:
        return link[0] if (DOCS / folder / f"{link[2]}.md").exists() else link[1]

    for folder in ("plugins", "suites"):
        here = r"(?:\./)?" if name.startswith(f"{folder}/") else rf"(?:\.\./)*{folder}/"
        source[0] = re.sub(rf"\[([^\]]*)\]\({here}([\w-]+)\.md(?:#[^)]*)?\)", text, source[0])
    if name == root_doc:
        entry = re.compile(r"^.* <((?:plugins|suites)/[\w-]+)>\n", re.MULTILINE)
        source[0] = entry.sub(lambda line: line[0] if (DOCS / f"{line[1]}.md").exists() else "", source[0])


def browser(app: Sphinx, error: Exception | None) -> None:
    """Write `all-blocks.html`, the table of blocks.csv, with the style and the script of a report's page."""
    with (DOCS / "blocks.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    text = (DOCS / "blocks.html").read_text(encoding="utf-8")
    style, script = ((TEMPLATES / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    columns = [heading(name) for name in header]
    families = sorted({row[1] for row in rows})
    page = Environment(autoescape=True).from_string(text)
    made = page.render(columns=columns, rows=rows, families=families, style=Markup(style), script=Markup(script))
    Path(app.outdir, "all-blocks.html").write_text(made, encoding="utf-8")


def heading(name: str) -> tuple[str, str]:
    """`Memory, train (MiB)` of `memory_train_mib`, and how such numbers are obtained."""
    if name in ("block", "family", "title"):
        return name.capitalize(), "label"
    origin = next((kind for starts, kind in ORIGINS.items() if name.startswith(starts)), "predicted")
    first, *words, unit = name.split("_")
    what = WORDS.get(first, first.upper() if name.endswith("_ms") else first.capitalize())
    return f"{', '.join([what, *words])} ({UNITS.get(unit, unit)})", origin


def for_programs(app: Sphinx, error: Exception | None) -> None:
    """Write each page beside its HTML as Markdown, and `llms.txt`, which lists them (llmstxt.org)."""
    shutil.copy(DOCS / "blocks.csv", app.outdir)
    lines = ["# ctxbench", "", "> The cost of global-context modules in vision networks.", "", "## Pages", ""]
    for name in sorted(app.env.found_docs):
        page = Path(app.outdir, f"{name}.md")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(alone(app, name), encoding="utf-8")
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.md)")
    lines += ["", "## Data", "", "- [What each block costs](blocks.csv): numbers of [1, 512, 64, 64] in float32"]
    Path(app.outdir, "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def alone(app: Sphinx, name: str) -> str:
    """The Markdown of a page for the site: a file that the site lacks is named with its path in the repository."""
    source = Path(app.srcdir, f"{name}.md")

    def written(link: re.Match[str]) -> str:
        target = (source.parent / link[3]).resolve()
        if not target.is_file() or (target.suffix == ".md" and DOCS in target.parents):
            return link[0]
        if link[1]:
            pictures = os.path.relpath(Path(app.outdir, "_images"), Path(app.outdir, name).parent)
            return f"![{link[2]}]({pictures}/{target.name})"
        return f"{link[2]} (`{target.relative_to(DOCS.parent)}` in the repository)"

    text = re.sub(r"<!--.*?-->\n?", "", source.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(?:#[^)\s]*)?\)", written, text)


def setup(app: Sphinx) -> None:
    app.connect("source-read", outside)
    app.connect("source-read", without)
    app.connect("build-finished", browser)
    app.connect("build-finished", for_programs)
