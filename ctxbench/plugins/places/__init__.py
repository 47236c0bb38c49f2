"""Places of blocks in detectors and backbones: the inputs that a block gets there."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="knows the inputs of a block at places of detectors and backbones",
    needs=("macs",),
    extras={"yaml": ("yaml",)},
    metrics=("metric:METRIC",),
    places=("places:inputs_at",),
    questions={"inputs_of_part": "child:inputs_of"},
    figures=("figure:FIGURES",),
)
