"""Sixty classes of public packages, chosen before any was tried: each is compared, or refused as a person judged."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ctxbench.metrics.params import count_params
from ctxbench.model.case import one_case
from ctxbench.model.failures import describe_failure
from ctxbench.plugins.macs.counter import count_macs
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.verify.checks import CHECKS, COMPILERS, run_checks
from ctxbench.plugins.verify.contract import OTHER_SIZES, SIZE
from ctxbench.plugins.verify.subject import Subject
from ctxbench.registry.formula import evaluate

# A row for each class: what is asked for and how a refusal was judged, by hand; the rest by research/public_classes.py.
FOLDER = Path(__file__).parents[3] / "results" / "public-classes"
TABLE = FOLDER / "sweep.csv"
SHAPE = (1, 64, 32, 32)
C, N = 64, 32 * 32
ATTENTION = 2 * N**2  # products a channel: of queries and keys, and of weights and values
# Parameters and products by hand, of classes whose structure is plain.
FORMS = {
    "timm.layers:SEModule": (2 * C * 8 + 8 + C, 2 * C * 8),
    "timm.layers:EcaModule": (3, 3 * C),
    "timm.layers:GlobalContext": (C + 1 + 2 * C * 8 + 8 + 2 * 8 + C, 2 * N * C + 2 * C * 8),
    "timm.models.vision_transformer:Block": (
        2 * 2 * C + 3 * C * C + C * C + C + 2 * C * 4 * C + 5 * C,
        N * (4 * C * C + 8 * C * C) + ATTENTION * C,
    ),
    "torchvision.ops:SqueezeExcitation": (2 * C * 16 + 16 + C, 2 * C * 16),
    "torchvision.models.resnet:Bottleneck": (
        2 * C * 16 + 16 * 16 * 9 + 2 * (16 + 16 + C),
        N * (2 * C * 16 + 16 * 16 * 9),
    ),
    "torchvision.models.convnext:CNBlock": (49 * C + C + 2 * C + 8 * C * C + 5 * C + C, N * (49 * C + 8 * C * C)),
    "torchvision.models.mobilenetv2:InvertedResidual": (
        8 * C * C + 9 * 4 * C + 2 * (4 * C + 4 * C + C),
        N * (8 * C * C + 9 * 4 * C),
    ),
    "torchvision.models.vision_transformer:EncoderBlock": (
        2 * 2 * C + 4 * C * C + 4 * C + 2 * C * 128 + 128 + C,
        N * (4 * C * C + 2 * C * 128) + ATTENTION * C,
    ),
    "diffusers.models.attention_processor:Attention": (4 * C * 512 + C, N * 4 * C * 512 + ATTENTION * 512),
    "diffusers.models.attention:FeedForward": (C * 512 + 512 + 256 * C + C, N * (C * 512 + 256 * C)),
    "diffusers.models.attention:BasicTransformerBlock": (
        2 * 2 * C + 4 * C * C + C + C * 512 + 512 + 256 * C + C,
        N * (4 * C * C + C * 512 + 256 * C) + ATTENTION * C,
    ),
    "diffusers.models.normalization:GlobalResponseNorm": (2 * C, 0),
    "monai.networks.blocks:SABlock": (4 * C * C + C, N * 4 * C * C + ATTENTION * C),
    "monai.networks.blocks:SpatialAttentionBlock": (2 * C + 4 * (C * C + C), N * 4 * C * C + ATTENTION * C),
    "monai.networks.blocks:UnetResBlock": (2 * 9 * C * C, N * 2 * 9 * C * C),
    "segmentation_models_pytorch.base.modules:SCSEModule": (2 * C * 4 + 4 + C + C + 1, 2 * C * 4 + N * C),
    "vit_pytorch.vit:Attention": (2 * C + 4 * C * 512 + C, N * 4 * C * 512 + ATTENTION * 512),
    "ultralytics.nn.modules:SpatialAttention": (2 * 49, N * 2 * 49),
    "ultralytics.nn.modules:CBAM": (C * C + C + 2 * 49, C * C + N * 2 * 49),
    "ultralytics.nn.modules:SPPF": (C * 32 + 4 * 32 * C + 2 * (32 + C), N * (C * 32 + 4 * 32 * C)),
    "ultralytics.nn.modules:C2f": (
        C * C + 2 * 9 * 32 * 32 + 3 * 32 * C + 2 * (C + 32 + 32 + C),
        N * (C * C + 2 * 9 * 32 * 32 + 3 * 32 * C),
    ),
}


def tried(reference: str, hparams: dict[str, Any]) -> dict[str, str]:
    """The cells of a row that say what `ctxbench compare` does with a class: checks of its contract, then its costs."""
    case = one_case(reference, {"shape": SHAPE}, hparams)
    make = case.entry.load()
    subject = Subject(case.entry, make, C, case.hparams, SIZE, (*OTHER_SIZES, SHAPE[2:]))
    results = [*run_checks(subject, [each for each in CHECKS if each not in COMPILERS])]
    if refused := next((f"{each.name}: {each.fact}" for each in results if each.misleads), ""):
        return {"outcome": "refused", "said": refused, "params": "", "macs_matmul": ""}
    marks = ", ".join(each.mark for each in results if each.mark)
    module, x = case.on_meta()
    found = {"params": str(count_params(module))}
    try:
        found["macs_matmul"] = str(count_macs(module, x).macs_matmul)
        predict_peak(module, x, mode="train")
    except Exception as error:  # whatever a module raises is a result
        said = describe_failure(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)).message
        return {"outcome": "refused", "said": said, "macs_matmul": "", **found}
    return {"outcome": "compared", "said": marks, **found}


def truth(reference: str, hparams: dict[str, Any]) -> dict[str, str]:
    """Parameters and products of the real module in eager PyTorch."""
    real = one_case(reference, {"shape": SHAPE}, hparams).build().eval()
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(
        False
    )  # FlopCounterMode counts it, and fused attention on a CPU, as nothing
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            real(torch.randn(SHAPE))
    finally:
        torch.backends.mha.set_fastpath_enabled(was)
    params = sum(each.numel() for each in real.parameters())
    return {"params": str(params), "macs_matmul": str(counter.get_total_flops() // 2)}


def stored() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def test_each_of_sixty_classes_is_compared_or_rightly_refused() -> None:
    rows = stored()
    assert len({row["class"] for row in rows}) == len(rows) == 60
    assert sum(row["outcome"] == "compared" for row in rows) >= 50
    assert {row["class"] for row in rows if row["judged"]} == {r["class"] for r in rows if r["outcome"] == "refused"}
    assert all(row["judged"].startswith("rightly: ") for row in rows if row["judged"])


@pytest.mark.parametrize("reference", FORMS)
def test_a_plain_class_has_the_parameters_and_products_of_its_closed_form(reference: str) -> None:
    row = next(each for each in stored() if each["class"] == reference)
    assert (int(row["params"]), int(row["macs_matmul"])) == FORMS[reference]


def test_classes_of_twelve_repositories_have_the_counts_of_eager_pytorch_and_of_their_closed_forms() -> None:
    with (FOLDER / "repositories.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert len({row["repository"] for row in rows}) == 12
    counted = [row for row in rows if row["today"] != "refused rightly"]
    assert {row["today"] for row in counted} == {"compared", "counted"}
    assert all(row["why"] for row in rows if row["first"] != "compared")
    assert all(bool(row["params"]) == (row in counted) for row in rows)
    formed = [row for row in counted if row["params_form"]]
    assert len(formed) >= 25
    for name in ("params", "macs_matmul"):
        assert all(row[name] == row[f"eager_{name}"] for row in counted)
    for row in formed:
        forms = (row["params_form"], row["macs_form"])
        assert [str(evaluate(each, {"C": C, "N": N})) for each in forms] == [row["params"], row["macs_matmul"]]


@pytest.mark.slow
@pytest.mark.extra("public")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", stored(), ids=lambda row: row["class"])
def test_a_class_is_compared_as_stored_and_has_the_counts_of_the_module_that_it_names(row: dict[str, str]) -> None:
    torch.manual_seed(0)
    hparams = json.loads(row["settings"])
    found = tried(row["class"], hparams)
    stale = "of another version: run `python research/public_classes.py`"
    assert {name: row[name] for name in ("outcome", "params", "macs_matmul")}.items() <= found.items(), stale
    if row["outcome"] == "compared":
        assert truth(row["class"], hparams).items() <= found.items()
