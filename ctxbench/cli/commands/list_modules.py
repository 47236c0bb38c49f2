"""`ctxbench list`: the modules that can be measured, the suites, networks, or devices."""

from typing import Annotated

import typer

from ctxbench.base.terminal import say
from ctxbench.base.texts import safe


def list_modules(
    suites: Annotated[bool, typer.Option("--suites", help="List the suites instead: questions and minutes.")] = False,
    networks: Annotated[
        bool, typer.Option("--networks", help="List the networks instead, into which --network puts a module.")
    ] = False,
    devices: Annotated[
        bool, typer.Option("--devices", help="List the devices of predicted times, and what is known of each.")
    ] = False,
) -> None:
    """List the modules that ctxbench and installed packages bring, by family; the suites; networks; or devices."""
    if suites:
        _suites()
    if networks:
        _networks()
    if devices:
        _devices()
    if suites or networks or devices:
        return
    from ctxbench import registry

    entries = registry.entries()
    width = max(len(entry.key) for entry in entries)
    for family in dict.fromkeys(sorted(entry.family for entry in entries)):
        say(f"{safe(family)}:")
        for entry in entries:
            if entry.family == family:
                what = f"broken: {entry.broken}" if entry.broken else entry.about or entry.title
                year = f" ({entry.year})" if entry.year else ""
                say(f"  {safe(entry.key).ljust(width)}  {safe(what)}{year}")


def _networks() -> None:
    from ctxbench.registry import networks

    found = [networks.get(name) for name in networks.names()]
    width = max(len(each.key) for each in found)
    for each in found:
        say(f"{each.key.ljust(width)}  {each.title} [{', '.join(map(str, each.shape or ()))}]")


def _devices() -> None:
    from ctxbench.cli.printing import render
    from ctxbench.plugin import loaded

    for catalogue in loaded("devices"):
        render(catalogue.table())


def _suites() -> None:
    from ctxbench.model.read_suite import available, load

    rows = [(name, load(name).file) for name in available()]
    width = max(len(name) for name, _ in rows)
    for name, file in rows:
        minutes = f" (about {file.minutes:g} min on two cores)" if file.minutes else ""
        say(f"{name.ljust(width)}  {file.question or file.title}{minutes}")
