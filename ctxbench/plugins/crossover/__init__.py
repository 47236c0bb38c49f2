"""Crossovers: from which input size on one module is cheaper than another."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="tells from which input size on one module is cheaper than another",
)
