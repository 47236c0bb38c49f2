"""ConvNeXt-T with a module after each of its four stages.

Source: Liu et al., A ConvNet for the 2020s, CVPR 2022.
"""

from torch import nn

from ctxbench.networks._parts import backbone
from ctxbench.registry.networks import MakeModule, network


@network(
    "convnext_tiny",
    title="ConvNeXt-T, a module after each stage",
    paper="Liu et al., A ConvNet for the 2020s, CVPR 2022",
    shape=(1, 3, 224, 224),
    multiple=32,
)
def convnext_tiny(make_module: MakeModule) -> nn.Module:
    """[B, 3, H, W] to [B, 1000]; the slots have 96, 192, 384 and 768 channels at H / 4, 8, 16 and 32."""
    model = backbone("convnext_tiny")
    for index, stage in enumerate(model.stages):
        model.stages[index] = nn.Sequential(stage, make_module(model.feature_info[index]["num_chs"]))
    found: nn.Module = model
    return found
