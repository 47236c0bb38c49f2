"""A table as an HTML fragment, and the templates that it and the page share; everything from outside is escaped."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ..tables.table import Table


def template_text(name: str) -> str:
    """A file of the folder `templates`."""
    return (files("ctxbench.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    return Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_html(table: Table, name: str = "table") -> str:
    """The table with caption and footnotes; `name` is its id and the prefix of its footnotes' ids."""
    return str(environment().get_template("table.html").module.table(table, name)).strip() + "\n"  # type: ignore[attr-defined]  # a macro of the template


def trusted(text: str) -> Markup:
    """Our own markup, style or script: it is not escaped, so nothing from outside may be in it."""
    return Markup(text)
