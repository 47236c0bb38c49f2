"""Dilated ResNets as mmsegmentation trains them: a decode head, an auxiliary one, and the losses of both.

Source: mmsegmentation (OpenMMLab, Apache-2.0), `configs/_base_/models/*_r50-d8.py`, `mmseg/models/decode_heads` and
`mmseg/models/losses`; Chen et al., Rethinking Atrous Convolution for Semantic Image Segmentation, 2017, for the output
stride of 8; He et al., Bag of Tricks for Image Classification with Convolutional Neural Networks, CVPR 2019, for the
stem of three 3x3 convolutions. `ctxbench.networks.mmsegmentation:r101_150` is that of a ResNet-101 and 150 classes.

The block is in the FCN head, as GCNet, CCNet and the non-local network have theirs. A class of this file in its place,
such as `ctxbench.networks.mmsegmentation:PSPNet`, is the whole decode head.
"""

from functools import partial
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.networks._mmseg_blocks import MIDDLE, conv, resized
from ctxbench.networks._mmseg_heads import (
    ANN,
    FCN,
    WIDTH,
    APCNet,
    DANet,
    DeepLabV3,
    DeepLabV3Plus,
    DMNet,
    DNLNet,
    EMANet,
    EncNet,
    Head,
    ISANet,
    PSPNet,
)
from ctxbench.networks._parts import backbone
from ctxbench.registry.networks import MakeModule, Network, network

__all__ = [
    "ANN",
    "APCNet",
    "DANet",
    "DMNet",
    "DNLNet",
    "DeepLabV3",
    "DeepLabV3Plus",
    "EMANet",
    "EncNet",
    "ISANet",
    "PSPNet",
]

DEPTHS = (50, 101)
# Vaihingen and Potsdam, LoveDA, iSAID, Cityscapes, Pascal VOC, Pascal Context, ADE20K, COCO-Stuff.
CLASSES = (6, 7, 16, 19, 21, 60, 150, 171)
AUXILIARY_SHARE = 0.4


def _classifier(channels: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(channels, classes, 1))


class Segmentation(nn.Module):
    """[B, 3, H, W] to the logits [B, classes, H, W]; in training to the loss, for labels that are 0.

    The loss has the accuracy computed beside it, as mmsegmentation logs it. SyncBN is batch normalisation here.
    """

    def __init__(self, depth: int, head: Head, classes: int) -> None:
        super().__init__()
        self.backbone = backbone(f"resnet{depth}c", features_only=True, output_stride=8, out_indices=(1, 2, 3, 4))
        self.head = head
        self.classifiers = nn.ModuleList(_classifier(head.width, classes) for _ in range(head.outputs))
        self.auxiliary = nn.Sequential(conv(MIDDLE, 256, 3), _classifier(256, classes))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            logits: Tensor = resized(self._logits(self.backbone(x))[0], x)
            return logits
        labels = torch.zeros(x.size(0), *x.shape[2:], dtype=torch.int64, device=x.device)
        maps = self.backbone(x)
        losses = [self._loss(each, labels) for each in self._logits(maps)]
        losses.append(AUXILIARY_SHARE * self._loss(self.auxiliary(maps[2]), labels))
        return torch.stack(losses).sum()

    def _logits(self, maps: list[Tensor]) -> list[Tensor]:
        return [classify(each) for classify, each in zip(self.classifiers, self.head(maps), strict=True)]

    @staticmethod
    def _loss(logits: Tensor, labels: Tensor) -> Tensor:
        logits = resized(logits, labels)
        loss = functional.cross_entropy(logits, labels, reduction="none").mean()
        (logits.topk(1, dim=1).indices.squeeze(1) == labels).float().mean()  # the accuracy, which nothing here reads
        return loss


def build(make_module: MakeModule, depth: int = 50, classes: int = 19) -> nn.Module:
    """[B, 3, H, W] to the loss, or to [B, `classes`, H, W]; the slot has 512 channels at H / 8."""
    slot = make_module(WIDTH)
    inside = getattr(slot, "module", None)
    model = Segmentation(depth, inside if isinstance(inside, Head) else FCN(slot), classes)
    model.slot = slot  # a head takes maps of several stages, so it is called without its slot
    return model


def _declared(key: str, depth: int, classes: int) -> Network:
    return network(
        key,
        title=f"ResNet-{depth}, output stride 8, {classes} classes, as mmsegmentation trains it",
        paper="MMSegmentation Contributors, 2020",
        shape=(2, 3, 512, 1024),
    )(partial(build, depth=depth, classes=classes))


mmsegmentation = _declared("mmsegmentation", 50, 19)
globals().update(
    {key: _declared(key, *facts) for facts in product(DEPTHS, CLASSES) for key in ["r{}_{}".format(*facts)]}
)
