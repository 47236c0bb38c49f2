"""mmengine's `get_model_complexity_info`: fvcore's rules, of one image."""

from ctxbench.plugins.macs.tools import fvcore
from ctxbench.plugins.macs.tools.calls import Tool, by_operators, of_one_image

_count, _sees = by_operators(fvcore.RULES)

TOOL = Tool(
    "mmengine",
    "mmengine 0.10.7",
    "flops",
    "as fvcore, of one image, whatever the batch",
    of_one_image(_count),
    _sees,
)
