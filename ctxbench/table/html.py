"""A table as an HTML fragment, and the templates that it and the page share; what is from outside is escaped."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ctxbench.base import disk
from ctxbench.base.texts import safe
from ctxbench.table.table import Table


def template_text(name: str) -> str:
    """A template by its package and its file: `package:file`."""
    package, _, file = name.partition(":")
    return disk.package_text(package, file)


@cache
def environment() -> Environment:
    return Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: safe(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def fill_page(template: str, script: str, styles: Sequence[str], **values: Any) -> str:
    """A self-contained page of a template, with the files of a script and of styles inside it."""
    code = template_text(script)
    return (
        environment()
        .get_template(template)
        .render(
            script=trusted(code),
            script_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
            style=trusted("".join(map(template_text, styles))),
            **values,
        )
    )


def render_html(table: Table, name: str = "table") -> str:
    """The table with caption and footnotes; `name` is its id and the prefix of its footnotes' ids."""
    return str(environment().get_template("ctxbench.table:table.html").module.table(table, name)).strip() + "\n"  # type: ignore[attr-defined]  # a macro of the template


def trusted(text: str) -> Markup:
    """Our own markup, style or script: it is not escaped, so nothing from outside may be in it."""
    return Markup(text)
