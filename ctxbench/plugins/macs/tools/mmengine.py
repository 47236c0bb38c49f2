"""mmengine's `get_model_complexity_info`: fvcore's rules, of one image."""

from ctxbench.plugins.macs.tools import fvcore
from ctxbench.plugins.macs.tools.calls import Tool, of_one_image

TOOL = Tool(
    "mmengine",
    "mmengine 0.10.7",
    "flops",
    "as fvcore, of one image, whatever the batch",
    of_one_image(fvcore.TOOL.count),
    fvcore.TOOL.sees,
)
