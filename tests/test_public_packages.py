"""Classes of public packages, as a person names them: parameters and products equal those of the real module."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ctxbench.metrics.params import count_params
from ctxbench.model.case import one_case
from ctxbench.plugins.macs.counter import count_macs

# A row for each class, which `python research/public_classes.py` writes.
TABLE = Path(__file__).parents[1] / "results" / "public-classes" / "classes.csv"
MAP, IMAGE = (1, 64, 16, 16), (1, 3, 64, 64)
BLOCKS, NETS = "monai.networks.blocks", "monai.networks.nets"
TWO = {"spatial_dims": 2}
SAME = {**TWO, "out_channels": 64}
# Blocks of 64 channels, with what they need beside the width.
BLOCK_CASES: list[tuple[str, dict[str, Any]]] = [
    ("axial_attention:AxialAttention", {}),
    ("axial_attention:AxialAttention", {"dim_index": 1}),
    ("axial_attention:AxialImageTransformer", {"depth": 1}),
    ("axial_attention:SelfAttention", {"heads": 4}),
    ("bottleneck_transformer_pytorch:BottleBlock",
     {"fmap_size": 16, "dim_out": 64, "proj_factor": 4, "downsample": False}),
    ("g_mlp_pytorch:gMLPBlock", {"dim_ff": 128, "seq_len": 256}),
    ("g_mlp_pytorch:gMLP", {"depth": 2, "seq_len": 256}),
    ("halonet_pytorch:HaloAttention", {"block_size": 4, "halo_size": 2}),
    ("lambda_networks:LambdaLayer", {"dim_k": 16, "n": 16, "heads": 4}),
    ("lambda_networks:LambdaLayer", {"dim_k": 16, "r": 7, "heads": 4}),
    ("linformer:Linformer", {"seq_len": 256, "depth": 2, "heads": 4, "k": 32}),
    ("linformer:LinformerSelfAttention", {"seq_len": 256, "k": 32, "heads": 4}),
    ("nystrom_attention:NystromAttention", {"heads": 4, "num_landmarks": 32}),
    ("nystrom_attention:Nystromformer", {"depth": 1, "heads": 4, "num_landmarks": 32}),
    ("local_attention:LocalMHA", {"window_size": 16, "heads": 4}),
    (f"{BLOCKS}:CABlock", {**TWO, "num_heads": 4, "bias": True}),
    (f"{BLOCKS}:FeedForward", {**TWO, "ffn_expansion_factor": 2.0, "bias": True}),
    (f"{BLOCKS}:ChannelSELayer", TWO),
    (f"{BLOCKS}:ResidualSELayer", TWO),
    (f"{BLOCKS}:SpatialAttentionBlock", TWO),
    (f"{BLOCKS}:SABlock", {"num_heads": 4}),
    (f"{BLOCKS}:CrossAttentionBlock", {"num_heads": 4}),
    (f"{BLOCKS}:MLPBlock", {"mlp_dim": 128}),
    (f"{BLOCKS}:GCN", {"planes": 64}),
    (f"{BLOCKS}:Refine", {}),
    (f"{BLOCKS}:Swish", {}),
    (f"{BLOCKS}:Mish", {}),
    (f"{BLOCKS}:Convolution", {**SAME, "groups": 4}),
    (f"{BLOCKS}:ResidualUnit", SAME),
    (f"{BLOCKS}:RegistrationResidualConvBlock", SAME),
    (f"{BLOCKS}:SimpleASPP", {**TWO, "conv_out_channels": 16}),
    (f"{BLOCKS}:UnetResBlock", {**SAME, "kernel_size": 3, "stride": 1, "norm_name": "instance"}),
    (f"{BLOCKS}:UnetBasicBlock", {**SAME, "kernel_size": 3, "stride": 1, "norm_name": "instance"}),
    (f"{BLOCKS}:UnetOutBlock", SAME),
]  # fmt: skip
# Whole networks of an image of three channels.
NET_CASES: list[tuple[str, dict[str, Any]]] = [
    (f"{NETS}:BasicUNet", {**TWO, "in_channels": 3}),
    (f"{NETS}:BasicUNetPlusPlus", {**TWO, "in_channels": 3}),
    (f"{NETS}:DenseNet121", {**TWO, "in_channels": 3, "out_channels": 10}),
    (f"{NETS}:EfficientNetBN", {"model_name": "efficientnet-b0", "pretrained": False, **TWO, "in_channels": 3}),
    (f"{NETS}:FlexibleUNet", {"in_channels": 3, "out_channels": 2, "backbone": "efficientnet-b0"}),
    (f"{NETS}:HighResNet", {**TWO, "in_channels": 3}),
    (f"{NETS}:MedNeXt", {**TWO, "init_filters": 4, "in_channels": 3}),
    (f"{NETS}:SegResNet", {**TWO, "in_channels": 3}),
    (f"{NETS}:SEResNet50", {**TWO, "in_channels": 3}),
    (f"{NETS}:SEResNext50", {**TWO, "in_channels": 3}),
    (f"{NETS}:SwinUNETR", {"in_channels": 3, "out_channels": 2, "feature_size": 12, **TWO}),
    (f"{NETS}:UNETR", {"in_channels": 3, "out_channels": 2, "img_size": 64, "hidden_size": 96, "num_heads": 4, **TWO}),
    (f"{NETS}:ViT", {"in_channels": 3, "img_size": 64, "patch_size": 16, "hidden_size": 96, "num_heads": 4, **TWO}),
    (f"{NETS}:UNet", {**TWO, "in_channels": 3, "out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2)}),
    (f"{NETS}:AttentionUnet", {**TWO, "in_channels": 3, "out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2)}),
    (f"{NETS}:Discriminator", {"in_shape": (3, 64, 64), "channels": (8, 8), "strides": (2, 2)}),
]
CASES = [(*each, MAP) for each in BLOCK_CASES] + [(*each, IMAGE) for each in NET_CASES]


def named(reference: str, hparams: dict[str, Any], shape: tuple[int, ...]) -> dict[str, str]:
    """The cells of a row that say what was asked for."""
    return {"class": reference, "settings": json.dumps(hparams), "shape": ",".join(map(str, shape))}


def counted(reference: str, hparams: dict[str, Any], shape: tuple[int, ...]) -> dict[str, str]:
    """The cells of a row that say what was counted: parameters, and the MACs of products in a pass."""
    module, x = one_case(reference, {"shape": shape}, hparams).on_meta()
    return {"params": str(count_params(module)), "macs_matmul": str(count_macs(module, x).macs_matmul)}


def stored() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def test_the_table_in_the_docs_has_a_row_for_each_class() -> None:
    asked = [named(*each) for each in CASES]
    assert [{name: row[name] for name in asked[0]} for row in stored()] == asked


@pytest.mark.slow
@pytest.mark.extra("public")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("reference", "hparams", "shape"), CASES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_a_published_class_has_the_counts_of_the_module_that_it_names(
    reference: str, hparams: dict[str, Any], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    real = one_case(reference, {"shape": shape}, hparams).build().eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        real(torch.randn(shape))
    params, products = sum(each.numel() for each in real.parameters()), counter.get_total_flops() // 2
    found = counted(reference, hparams, shape)
    assert found == {"params": str(params), "macs_matmul": str(products)}
    row = next(each for each in stored() if named(reference, hparams, shape).items() <= each.items())
    assert found.items() <= row.items(), "counts of another version: run `python research/public_classes.py`"
