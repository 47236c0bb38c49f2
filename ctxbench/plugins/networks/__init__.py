"""Modules in whole networks: what they add, and where the MACs are."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="tells what a module adds to a whole network",
    needs=("macs", "memory"),
    metrics=("added:METRIC", "in_slot:METRIC"),
    figures=("figure:FIGURES",),
    tables={"table:network_tables": 10},
    printed={"table:network_tables": 10},
    suites="suites",
    notes={"no_slot_input": "of the module alone: it takes several maps of the network, past its slot"},
)
