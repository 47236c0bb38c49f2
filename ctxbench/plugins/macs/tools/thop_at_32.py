"""thop as ultralytics called it until 2026: twice its count of a 32 x 32 input, scaled to the area of the real one."""

from ctxbench.plugins.macs.tools import thop
from ctxbench.plugins.macs.tools.calls import Calls, Tool

SIDE = 32


def _count(calls: Calls) -> int:
    _, channels, height, width = calls.shape
    small = calls.at((1, channels, SIDE, SIDE))
    return 2 * thop.TOOL.count(small) * height * width // SIDE**2


TOOL = Tool(
    "thop, as ultralytics called it",
    thop.TOOL.package,
    "FLOPs",
    f"twice thop's count of one image of {SIDE} x {SIDE}, times the ratio of the areas",
    _count,
    thop.TOOL.sees,
)
