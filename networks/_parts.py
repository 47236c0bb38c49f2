"""Parts of several networks: timm's backbones without trained weights, and a segmentation head."""

from types import ModuleType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ctxbench.base.extras import lacking
from ctxbench.devices import Unsupported
from ctxbench.registry.torchvision import with_torchvision


def timm() -> ModuleType:
    """The library. Unsupported with the command where it is not installed."""
    if sentence := lacking("this network", "networks"):
        raise Unsupported(sentence)

    def library() -> ModuleType:
        import timm

        found: ModuleType = timm
        return found

    return with_torchvision(library)


def backbone(name: str, **settings: Any) -> Any:
    """A model of timm, with random weights."""
    return timm().create_model(name, pretrained=False, **settings)


def merged(*, name: str) -> nn.Module:
    """A model of timm for inference, whose batch norms are a part of the layers before them."""
    library = timm()
    found: nn.Module = library.utils.reparameterize_model(backbone(name).eval())
    return found


class Segmentation(nn.Module):
    """[B, 3, H, W] to [B, classes, H, W]: the last map of the backbone, the module in a head, classes for each pixel.

    The head is a 3x3 convolution to `width` channels, batch norm and ReLU; then the module; then a 1x1 convolution.
    """

    def __init__(self, backbone: Any, context: nn.Module, width: int, classes: int = 19) -> None:
        super().__init__()
        self.backbone = backbone
        channels = backbone.feature_info.channels()[-1]
        self.reduce = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.context = context
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.classifier(self.context(self.reduce(self.backbone(x)[-1])))
        out: Tensor = functional.interpolate(scores, x.shape[2:], mode="bilinear", align_corners=False)
        return out
