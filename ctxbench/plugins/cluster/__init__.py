"""Runs on a Ray cluster."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="spreads the cases of a run over a Ray cluster",
    slots={"run": "cluster:run", "resume": "cluster:resume"},
    extras={"ray": ("ray",)},
)
