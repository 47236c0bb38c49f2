"""Wrong figures in two honest tables: none is called equal, each has a reason, and no honest one is accused."""

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from conftest import need_torchvision
from report_data import published

from ctxbench.model.case import Case
from ctxbench.model.conditions import Shape
from ctxbench.plugins.audit.child import count_case
from ctxbench.plugins.audit.finding import AuditFinding, Verdict
from ctxbench.plugins.audit.recount import Recount
from ctxbench.plugins.audit.recounted import COUNTS, RecountedTable
from ctxbench.plugins.audit.table import of_columns
from ctxbench.plugins.audit.verdicts import judge

# Counts of networks of torchvision 0.28 and of blocks, by the name and the input.
COUNTED: Mapping[str, Mapping[str, int]] = (
    json.loads(path.read_text(encoding="utf-8")) if (path := Path(__file__).parent / "counted.json").exists() else {}
)
NETWORKS = (
    "vit_b_16", "vit_b_32", "vit_l_16", "swin_t", "swin_s", "swin_v2_t", "swin_v2_s", "maxvit_t", "convnext_tiny",
    "convnext_small", "resnet18", "resnet50", "resnet101", "mobilenet_v3_large",
)  # fmt: skip
MAP: Shape = (1, 512, 128, 128)
BLOCKS: dict[str, tuple[str, Shape]] = {
    **{name: (name, MAP) for name in ("sa", "da", "a2", "acf", "ppm", "non_local", "se", "lka", "ham_nmf", "external")},
    "sa, at 97": ("sa", (1, 512, 97, 97)),
    "apc, two images": ("apc", (2, 512, 128, 128)),
    "efficient": ("efficient", MAP),
}
GREEN = (Verdict.EQUAL, Verdict.CONVENTION)
Plants = Mapping[tuple[str, str], tuple[str, str]]


def key(name: str, shape: Shape) -> str:
    return f"{name} {','.join(map(str, shape))}"


def of_network(name: str, count: str) -> int:
    return COUNTED[key(name, (1, 3, 224, 224))][count]


def of_block(row: str, count: str) -> int:
    return COUNTED[key(*BLOCKS[row])][count]


def stored(case: Case, names: Iterable[str]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    own = COUNTED.get(key(case.module, case.shape), {})
    return {name: own[name] for name in names if name in own}, {name: "" for name in names if name not in own}


def honest_networks() -> dict[tuple[str, str], str]:
    """Params and MACs as torchvision prints them: MACs of products and convolutions alone."""
    params = {(name, "params"): f"{of_network(name, 'params') / 1e6:.2f}" for name in NETWORKS}
    return params | {(name, "macs"): f"{of_network(name, 'macs_matmul') / 1e9:.2f}" for name in NETWORKS}


def honest_blocks() -> dict[tuple[str, str], str]:
    found = {}
    for row in BLOCKS:
        found[row, "params"] = f"{of_block(row, 'params') / 1e6:.2f}"
        found[row, "macs"] = f"{of_block(row, 'macs') / 1e9:.1f}" if row != "se" else "0.008"
        found |= {(row, memory): f"{of_block(row, memory) / 2**20:.0f}" for memory in ("memory_train", "memory_infer")}
    return found


def audited(tmp_path: Path, figures: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], AuditFinding]:
    """The findings about a table of networks, which a file builds, or of blocks."""
    builders = tmp_path / "networks.py"
    builders.write_text(
        "from torch import nn\n" + "".join(f"\n\ndef {name}():\n    return nn.Identity()\n" for name in NETWORKS)
    )
    rows: dict[str, dict[str, object]] = {}
    for (row, quantity), text in figures.items():
        if row in BLOCKS:
            where: dict[str, object] = {"block": BLOCKS[row][0], "shape": list(BLOCKS[row][1])}
        else:
            where = {"network": f"{builders}:{row}", "shape": [1, 3, 224, 224]}
        printed = rows.setdefault(row, {**where, "printed": {}})["printed"]
        assert isinstance(printed, dict)
        printed[quantity] = text
    table = RecountedTable.model_validate(published(rows))
    with contextlib.chdir(tmp_path):  # below which a table may name code
        return {(each.row, each.quantity): each for each in judge(Recount(tmp_path / "paper.toml", table, stored))}


def g(value: float, decimals: int = 2) -> str:
    return f"{value / 1e9:.{decimals}f}"


def m(value: float) -> str:
    return f"{value / 1e6:.2f}"


def mib(value: float) -> str:
    return f"{value / 2**20:.0f}"


def first_of_networks() -> Plants:
    """The first ones: what is printed, and what the reason has to name."""
    resnet50 = COUNTED[key("resnet50", (1, 3, 288, 288))]["macs_matmul"]
    return {
        ("swin_s", "params"): ("46.91", "with two digits exchanged, 49.61"),
        ("vit_l_16", "params"): (f"{of_network('vit_l_16', 'params') / 2**20:.2f}", "would be equal: M = 2^20"),
        ("resnet101", "macs"): (g(2 * of_network("resnet101", "macs_matmul")), "two operations a MAC"),
        ("convnext_tiny", "macs"): (g(of_network("convnext_small", "macs_matmul")), "exchanged with convnext_small"),
        ("convnext_small", "macs"): (g(of_network("convnext_tiny", "macs_matmul")), "exchanged with convnext_tiny"),
        ("resnet50", "macs"): (g(resnet50), "an input of 288 x 288, not 224 x 224, gives it"),
        ("vit_b_16", "params"): ("86.46", "would be equal: without biases"),
        ("vit_b_32", "params"): ("8.82", "it is 10^-1 times the count"),
        ("maxvit_t", "macs"): ("5.65", "with two digits exchanged, 5.56"),
    }


def first_of_blocks() -> Plants:
    sa, train, infer = of_block("sa", "memory_train"), "memory_train", "memory_infer"
    return {
        ("da", "macs"): ("254.9", "with two digits exchanged, 245.9"),
        ("sa", train): (f"{sa / 1e6:.0f}", "MiB = 10^6"),
        ("ppm", train): (mib(of_block("a2", train)), "exchanged with a2"),
        ("a2", train): (mib(of_block("ppm", train)), "exchanged with ppm"),
        ("non_local", "macs"): ("7.2", "all applied at each position, take more"),
        ("sa, at 97", infer): (mib(of_block("sa, at 97", train)), "would be equal: of a training step"),
        ("apc, two images", "macs"): (g(of_block("apc, two images", "macs") / 2, 1), "a batch of 1, not 2"),
        ("acf", train): (mib(of_block("acf", train) / 2), "half the count, as in 16 bits"),
        ("se", "macs"): ("8.4", "it is 10^3 times the count: another prefix"),
        ("sa", infer): ("".join(sorted(mib(of_block("sa", infer)))), "with two digits exchanged"),
        ("lka", "params"): ("0.82", "would be equal: without biases"),
    }


def second_of_networks() -> Plants:
    """Twelve more, of other kinds or in other places, here and below."""
    return {
        ("resnet18", "macs"): (f"{of_network('resnet18', 'macs_matmul') / 1e6:.2f}", "10^3 times the count"),
        ("vit_b_16", "macs"): (g(8 * of_network("vit_b_16", "macs_matmul")), "the count of a batch of 8, not 1"),
        ("swin_t", "macs"): (g(of_network("swin_t", "macs_train")), "of a training step"),
        ("vit_l_16", "macs"): (f"{of_network('vit_l_16', 'macs_matmul') / 2**30:.2f}", "G = 2^30"),
        ("swin_v2_t", "params"): (m(of_network("swin_v2_t", "params") + 4e4), "x1.00"),
        ("mobilenet_v3_large", "params"): (
            m(of_network("mobilenet_v3_large", "params") + of_network("mobilenet_v3_large", "buffers")),
            "would be equal: with buffers",
        ),
        ("maxvit_t", "params"): (m(of_network("swin_t", "params")), "it is the count of swin_t"),
    }


def second_of_blocks() -> Plants:
    return {
        ("da", "macs"): (g(of_block("acf", "macs"), 1), "all applied at each position, take more"),
        ("ham_nmf", "memory_infer"): (f"{of_block('ham_nmf', 'memory_infer') / 1e6:.0f}", "MiB = 10^6"),
        ("external", "params"): (m(2 * of_block("external", "params")), "x2.0"),
        ("acf", "memory_train"): (mib(of_block("acf", "memory_infer")), "of the forward pass alone"),
        ("ppm", "memory_infer"): (mib(1.3 * of_block("ppm", "memory_infer")), "x1.3"),
    }


def third_of_networks() -> Plants:
    """Fourteen more, here and below: rows in a circle, another head, other conventions, a digit misread."""
    products = {name: g(of_network(name, "macs_matmul")) for name in NETWORKS}
    return {
        ("resnet18", "macs"): (products["resnet50"], "it is the count of resnet50"),
        ("resnet50", "macs"): (products["resnet101"], "it is the count of resnet101"),
        ("resnet101", "macs"): (products["resnet18"], "it is the count of resnet18"),
        ("mobilenet_v3_large", "params"): (
            m(of_network("mobilenet_v3_large", "params") - 1281e3),
            "x0.77 of the count",
        ),
        ("vit_b_32", "macs"): (g(of_network("vit_b_32", "macs_layers")), "would be equal: convolutions and linear"),
        ("swin_v2_s", "params"): (
            m(of_network("swin_v2_s", "params") - of_network("swin_v2_s", "params_norm")),
            "would be equal: without normalisation",
        ),
        ("convnext_tiny", "macs"): ("4.45", "cut, not rounded, it is equal"),
        ("swin_s", "macs"): ("3.74", "x0.43 of the count"),
    }


def third_of_blocks() -> Plants:
    lka, ppm = of_block("lka", "memory_infer"), of_block("ppm", "memory_infer")
    return {
        ("lka", "memory_infer"): (mib(lka - 4 * of_block("lka", "params")), "would be equal: weights not counted"),
        ("ppm", "memory_infer"): (mib(ppm + 4 * 512 * 128**2), "would be equal: input counted"),
        ("da", "memory_train"): (mib(2 * of_block("da", "memory_train")), "x2.00 of the count"),
        ("external", "macs"): (g(of_block("external", "macs_train"), 1), "would be equal: of a training step"),
        ("sa", "params"): (m(of_block("sa", "params") + 512**2), "x1.25 of the count"),
        ("a2", "macs"): (g(2 * of_block("a2", "macs"), 1), "would be equal: as two operations a MAC"),
    }


@pytest.mark.parametrize(
    ("honest", "plants"),
    [
        (honest_networks, first_of_networks),
        (honest_networks, second_of_networks),
        (honest_blocks, first_of_blocks),
        (honest_blocks, second_of_blocks),
        (honest_networks, third_of_networks),
        (honest_blocks, third_of_blocks),
    ],
)
def test_no_planted_figure_is_green_and_no_honest_one_is_accused(
    tmp_path: Path, honest: Callable[[], dict[tuple[str, str], str]], plants: Callable[[], Plants]
) -> None:
    right, wrong = honest(), plants()
    assert {row: each.verdict for row, each in audited(tmp_path, right).items() if each.verdict not in GREEN} == {}
    assert all(right[figure] != text for figure, (text, _) in wrong.items())
    found = audited(tmp_path, {**right, **{figure: text for figure, (text, _) in wrong.items()}})
    assert {figure for figure, each in found.items() if each.verdict not in GREEN} == wrong.keys()
    assert {figure: found[figure].why for figure, (_, words) in wrong.items() if words not in found[figure].why} == {}


def test_a_column_names_its_convention_once(tmp_path: Path) -> None:
    found = audited(tmp_path, honest_networks())
    assert of_columns([*found.values()]) == [
        "params: 14 of 14 figures are equal by one convention: as the source means it.",
        "macs: 14 of 14 figures are equal by one convention: matrix products and convolutions alone.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("row", BLOCKS)
def test_the_stored_counts_of_blocks_are_those_of_today(row: str) -> None:
    from ctxbench import registry

    entry, shape = registry.get(BLOCKS[row][0]), BLOCKS[row][1]
    case = Case(entry.key, entry.reference, {}, shape, entry.defaults, device="meta")
    assert count_case(case, COUNTS).values == COUNTED[key(*BLOCKS[row])]


@pytest.mark.slow
@pytest.mark.extra("networks")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_stored_counts_of_networks_are_those_of_today(name: str) -> None:
    from ctxbench import registry

    need_torchvision()
    entry, shape = registry.get(f"torchvision.models:{name}"), (1, 3, 224, 224)
    case = Case(entry.key, entry.reference, {}, shape, entry.defaults, device="meta")
    own = COUNTED[key(name, shape)]
    assert count_case(case, [*own]).values == own
