"""Energy of a pass."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(about="measures the energy of a pass", metrics=("metric:METRIC",), notes={"no_energy": "{reason}"})
