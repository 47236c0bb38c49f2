"""Published accuracy of twins: networks that differ in the block alone, with the same body, recipe, size and author."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(about="shows published gains in accuracy next to costs", beside=("beside:gains_of",))
