"""The script behind calibration.csv, on synthetic kernels whose efficiencies are known."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ctxbench.plugins.predict import rates
from ctxbench.plugins.predict.rates import sustained
from ctxbench.plugins.predict.sheet import sheet
from ctxbench.plugins.predict.work import CACHED, Product, Work

sys.path.insert(0, str(Path(__file__).parents[1]))

import band_widths
import calibrate_time as script
import fit_kernels
import fit_networks
import prediction_data as data
import prediction_model
from network_passes import Kernels, Pass

DEVICES = ("tesla-p4", "t4", "v100-pcie", "a100-40gb", "l4")
COMPUTE, BANDWIDTH, CALL_US, WATTS = 0.9, 0.6, 20.0, 5.0


def synthetic(folder: Path, spread: float, devices: Sequence[str] = DEVICES) -> Path:
    """Products and elementwise kernels of known efficiency, with lognormal noise."""
    random = np.random.default_rng(0)
    lines = []
    for name in devices:
        own = sheet(name)
        for _ in range(60):
            m, n, k = (int(side) * 4 for side in random.integers(32, 1024, 3))
            flops = Product(1, m, n, k).tiled_flops(own.processors)
            peak = COMPUTE * own.peak("float32") * sustained(own.watts_per_tflops("float32"), WATTS)
            moved = 4 * (m * n + m * k + n * k)
            seconds = max(flops / peak, moved / (BANDWIDTH * own.bandwidth)) + CALL_US * 1e-6
            lines.append([own.title, "linear", 1, m, n, k, seconds])
            rows, columns = random.integers(500, 5000, 2)
            lines.append(
                [
                    own.title,
                    "add",
                    rows,
                    columns,
                    "",
                    "",
                    12 * rows * columns / (BANDWIDTH * own.bandwidth) + CALL_US * 1e-6,
                ]
            )
    frame = pd.DataFrame(lines, columns=["device", "operator", "d1", "d2", "d3", "d4", "ms"])
    frame["ms"] *= 1e3 * np.exp(random.normal(0, spread, len(frame)))
    for name in ("d5", "d6", "d7"):
        frame.insert(6, name, "")
    frame.to_csv(folder / "gpu_kernel_times.csv", index=False)
    return folder


def test_known_efficiencies_are_found_again(tmp_path: Path) -> None:
    classes = fit_kernels.kernels_of(script.read(synthetic(tmp_path, 0.02)))
    counts = {group: len(each.seconds) for group, each in classes.items()}
    assert counts == {("elementwise", "float32"): 300, ("large product", "float32"): 300}
    found = prediction_model.model(classes)
    known = {"compute": COMPUTE, "call_us": CALL_US, "watts": WATTS}  # no product is bound by bandwidth
    for name, value in known.items():
        assert found.fits["large product", "float32"][name] == pytest.approx(value, rel=0.15), name
    assert found.fits["elementwise", "float32"]["bandwidth"] == pytest.approx(BANDWIDTH, rel=0.02)
    # a device that is left out is predicted by the others
    products = classes["large product", "float32"]
    for title in (sheet(name).title for name in DEVICES):
        rest = prediction_model.model(classes, title).fits["large product", "float32"]
        assert np.median(np.abs(products.of(products.device == title).errors(rest))) < 0.05


def test_the_factor_of_a_card_is_found_again(tmp_path: Path) -> None:
    """The T4 takes 1.2 times as long in both classes: the mean of two known to 0.1, drawn to 0 by cards that differ by
    0.12. The others share what the rates of all cards make of it."""
    path = synthetic(tmp_path, 0.02) / "gpu_kernel_times.csv"
    frame = pd.read_csv(path)
    frame.loc[frame["device"] == sheet("t4").title, "ms"] *= 1.2
    frame.to_csv(path, index=False)
    found = prediction_model.model(fit_kernels.kernels_of(script.read(tmp_path))).cards
    logs = {title: log for (title, _, _), (log, _) in found.items()}
    assert {count for _, count in found.values()} == {120}
    apart = logs.pop(sheet("t4").title) - np.median(list(logs.values()))
    assert apart == pytest.approx(np.log(1.2) * 0.12**2 / (0.12**2 + 0.1**2 / 2), abs=0.03)


def test_the_files_have_a_row_for_each_class_and_one_for_each_device(tmp_path: Path) -> None:
    classes = fit_kernels.kernels_of(script.read(synthetic(tmp_path, 0.1)))
    efficiencies, devices = script.tables(classes, prediction_model.model(classes))
    assert list(efficiencies["class"]) == ["any", "elementwise", "large product"]
    assert list(efficiencies["kernels"][1:]) == [300, 300]
    assert sorted(devices["device"]) == sorted(sheet(name).title for name in DEVICES)
    assert devices["factor"].astype(float).between(0.9, 1.1).all()
    assert "gpu_kernel_times.csv (SHA-256" in script.provenance(tmp_path)


def test_what_a_measured_kernel_has_to_do() -> None:
    def work_of(operator: str, *sizes: int) -> Work:
        return data.work_of(operator, sizes)

    assert work_of("bmm", 3, 128, 256, 512).product == Product(3, 128, 256, 512)
    kinds = {(128, 256, 512): "large", (100, 256, 512): "skinny", (128, 255, 512): "unaligned"}
    kinds |= {(128, 256, 64): "shallow", (128, 64, 1024): "deep"}
    for (m, n, k), kind in kinds.items():
        assert work_of("linear", 1, m, n, k).kind == f"{kind} product"
    convolution = work_of("conv", 2, 16, 32, 3, 9, 1, 1)
    moved = 4 * (2 * 16 * 81 + 2 * 32 * 81 + 16 * 32 * 9)
    maps = 4 * (2 * 16 * 81 + 2 * 32 * 81)
    assert convolution == Work(
        "convolution 3x3",
        moved,
        Product(1, 2 * 81, 32, 16 * 9),
        Product(36, 2 * 9, 32, 16),
        converted_bytes=2 * maps,
    )
    assert work_of("add", 10, 20) == Work("elementwise", 2400)
    assert work_of("relu", 10, 20) == Work("elementwise", 1600)
    assert work_of("ln", 10, 20) == Work("norm", 1600)
    assert work_of("softmax", 10, 20) == Work("softmax", 1600, row_bytes=80, again_bytes=800)


def test_a_device_without_a_data_sheet_is_told(tmp_path: Path) -> None:
    path = tmp_path / "gpu_kernel_times.csv"
    path.write_text("device,operator,d1,d2,d3,d4,d5,d6,d7,ms\nNVIDIA Test,add,8,8,,,,,,0.1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no data sheet with the title 'NVIDIA Test'"):
        script.read(tmp_path)


def test_rows_of_the_sources_are_read_with_their_traps(tmp_path: Path) -> None:
    header = (
        "device,dtype,operator,m,n,k,transpose_a,transpose_b,width,height,in_channels,batch,out_channels,kernel_h,"
        "kernel_w,pad_h,pad_w,stride_h,stride_w,forward_ms,backward_input_ms,backward_weight_ms,algorithm,sheet_row"
    )
    lines = (
        "NVIDIA T4,float32,gemm,1760,128,1760,0,0,,,,,,,,,,,,0.5,,,,4",
        "NVIDIA T4,float32,gemm,1760,16,1760,0,0,,,,,,,,,,,,0.049,,,,5",  # too short
        "NVIDIA T4,float32,conv,,,,,,28,28,64,8,128,3,3,1,1,1,1,0.5,,0.9,,6",  # no gradient of the input
        "NVIDIA T4,float32,conv,,,,,,7,7,64,8,128,1,1,3,3,1,1,0.5,0.5,0.5,,7",  # a 1x1 convolution with padding
    )
    path = tmp_path / "deepbench_kernels.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    found = list(data.deepbench(path))
    assert [each.work.group for each in found] == [
        "large product", "convolution 3x3", "convolution 3x3, weight gradient"
    ]  # fmt: skip
    assert found[0].work == Work(
        "large product", 4 * (2 * 128 * 1760 + 128 * 1760 + 1760**2), Product(1, 128, 1760, 1760), form=CACHED
    )
    assert found[2].work.product == Product(1, 128, 64 * 9, 8 * 28 * 28)
    assert {(each.era, each.dtype, each.sheet.title) for each in found} == {("cuda-2020", "float32", "Tesla T4")}


def networks(slower: float) -> list[Pass]:
    """Passes of products and elementwise kernels in float16, at 0.7 of the peak and 0.5 of the bandwidth; the second
    card takes `slower` times as long."""
    random, found = np.random.default_rng(3), []
    for card, factor in (("rtx-3090", 1.0), ("rtx-5090", slower)):
        own = sheet(card)
        for i in range(40):
            m, k, numbers = (int(2**size) for size in (*random.integers(9, 13, 2), random.integers(22, 29)))
            sides = Product(1, m, 4096, k)
            product, relu = Work("large product", 2, sides), Work("elementwise", 2 * numbers)
            known = rates.rate(product, fit_networks._NOTHING, "float16")
            peak = own.peak("float16") * sustained(own.watts_per_tflops("float16"), known.watts)
            seconds = 10 * sides.tiled_flops(own.processors) / (0.7 * peak)
            seconds += relu.bytes / (0.5 * own.bandwidth)
            kernels = Kernels({(product, "float16"): 10, (relu, "float16"): 1})
            named = f"{'abcdefghij'[i % 10]}_{i}"
            found.append(Pass(named, 8, "infer", "nchw", own, factor * seconds + 11 * own.launch_s, kernels))
    return found


def test_the_rates_of_classes_are_found_in_whole_networks() -> None:
    table = fit_networks.Table(networks(slower=1.1))
    x = fit_networks.fit(table, table.card == table.cards.index("NVIDIA GeForce RTX 3090"))
    found = fit_networks.rates_of(table, x)
    assert found["large product", "float16"][0] == pytest.approx(0.7, rel=0.03)
    assert found["elementwise", "float16"] == pytest.approx((1.0, 0.5), rel=0.03)
    cards = fit_networks.factors(table, x, np.ones(80, bool))
    assert [(np.exp(log), count) for log, count in cards.values()] == [
        (pytest.approx(1.0, abs=0.03), 40), (pytest.approx(1.1, abs=0.03), 40)
    ]  # fmt: skip


def test_classes_whose_rates_are_alike_share_one() -> None:
    kinds = ("elementwise", "batch norm, input gradient", "large product", "deep product", "skinny product")
    assert [fit_networks.tied(kind) for kind in kinds] == [
        ("", "memory"), ("", "memory"), ("product", "product"), ("product", "product"), ("skinny product", "product")
    ]  # fmt: skip
    strided = fit_networks.tied("strided convolution 1x1, weight gradient")
    assert strided == ("convolution 1x1", "convolution, gradient")
    assert fit_networks.tied("depthwise convolution, weight gradient, channels last") == (
        "depthwise convolution, gradient, channels last", "depthwise convolution, gradient"
    )  # fmt: skip


def test_networks_of_one_first_word_are_left_out_together() -> None:
    passes = networks(slower=1.0)
    parts = fit_networks.folds(passes)
    assert np.sum(parts, axis=0).tolist() == [1] * len(passes)
    kin = [{each.kin for each, out in zip(passes, part, strict=True) if out} for part in parts]
    assert sorted(len(each) for each in kin) == [2] * fit_networks.FOLDS
    assert len(set.union(*kin)) == 10


def test_the_error_of_kernels_is_that_around_the_median_of_their_card(tmp_path: Path) -> None:
    classes = fit_kernels.kernels_of(script.read(synthetic(tmp_path, 0.1)))
    assert prediction_model.model(classes).kernel_sd == pytest.approx(0.1, rel=0.15)


def test_with_its_errors_the_band_holds_four_in_five_passes_of_each_kind() -> None:
    random = np.random.default_rng(4)
    # Standard deviations; the kernels' is 0.15 of them.
    true = {
        ("model", "infer"): 0.17,
        ("left out", "infer"): 0.25,
        ("model", "train"): 0.26,
        ("left out", "train"): 0.31,
    }
    rows = [
        {"source": "NeuSight passes", "known": known, "what": "a", "mode": mode, "device": card, "predicted_ms": "1.0",
         "measured_ms": str(np.exp(random.normal(0, sd))), "errors": json.dumps({"device": 9.0, "kernels": 0.15})}
        for (known, mode), sd in true.items() for card in "abcdefgh" for _ in range(300)
    ]  # fmt: skip
    errors = band_widths.found_in(rows)
    # 0.17^2 = 0.15^2 + 0.08^2, 0.25^2 = 0.15^2 + 0.2^2, 0.26^2 = 0.17^2 + 0.197^2
    assert errors == pytest.approx({"known": 0.08, "unknown": 0.2, "training": 0.197}, rel=0.1)
    # 0.32^2 = 0.17^2 + 0.271^2: passes in 16 bits have an error of their own, and tell nothing of the others'
    half = [{**rows[0], "source": "timm", "known": band_widths.FOR_BAND, "mode": "train",
             "measured_ms": str(np.exp(random.normal(0, 0.32)))} for _ in range(2000)]  # fmt: skip
    assert band_widths.found_in([*rows, *half]) == pytest.approx({**errors, "training, 16 bits": 0.271}, rel=0.1)
    found = band_widths.widened(rows, rows)
    for kind in true:
        own = [row for row in found if (row["known"], row["mode"]) == kind]
        held = [float(row["low_ms"]) <= float(row["measured_ms"]) <= float(row["high_ms"]) for row in own]
        assert np.mean(held) == pytest.approx(0.8, abs=0.02), kind
    # a card's own passes tell nothing of its band
    others = band_widths.found_in([row for row in rows if row["device"] != "a"])
    trained = next(row for row in found if row["mode"] == "train" and row["known"] == "left out")
    assert json.loads(trained["errors"]) == {
        "device": others["unknown"], "kernels": 0.15, "training": others["training"]
    }  # fmt: skip
    calibrated = {**rows[0], "known": "calibrated"}
    assert band_widths.widened([calibrated], rows) == [calibrated]


def test_the_family_of_a_network_is_what_most_of_it_is() -> None:
    dense, product = (
        Work("convolution 3x3", 1, Product(1, 100, 10, 10)),
        Work("large product", 1, Product(1, 100, 10, 10)),
    )
    few, attention = Work("depthwise convolution", 1, Product(10, 50, 1, 1)), Work("softmax", 1)

    def family(*works: Work) -> str:
        kernels = Kernels({(work, "float16"): 1 for work in works})
        return Pass("x", 1, "infer", "nchw", sheet("t4"), 1.0, kernels).family

    assert family(dense) == "convnet"
    assert family(dense, few) == "depthwise convnet"
    assert family(dense, Work("grouped convolution", 1, Product(2, 100, 5, 5))) == "grouped convnet"
    assert family(product, attention) == "transformer"
    assert family(product, attention, dense) == "hybrid"
