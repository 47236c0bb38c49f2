"""The script behind calibration.csv, on synthetic kernels whose efficiencies are known."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ctxbench.devices.sheet import sheet
from ctxbench.predict.rates import sustained
from ctxbench.predict.work import Product, Work, winograd_of

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import calibrate_time as script

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

DEVICES = ("tesla-p4", "t4", "v100-pcie", "a100-40gb", "l4")
COMPUTE, BANDWIDTH, CALL_US, WATTS = 0.9, 0.6, 20.0, 5.0


def synthetic(path: Path, spread: float, devices: Sequence[str] = DEVICES) -> Path:
    """Products and elementwise kernels of known efficiency, with lognormal noise."""
    random = np.random.default_rng(0)
    lines = []
    for name in devices:
        own = sheet(name)
        for _ in range(60):
            m, n, k = (int(side) * 4 for side in random.integers(32, 1024, 3))
            flops = Product(1, m, n, k).tiled_flops(own.processors)
            peak = COMPUTE * own.peak("float32") * sustained(own.watts_per_tflops, WATTS)
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
    frame.to_csv(path, index=False)
    return path


def test_known_efficiencies_are_found_again(tmp_path: Path) -> None:
    classes = script.read([synthetic(tmp_path / "kernels.csv", 0.02)])
    assert {kind: len(each.seconds) for kind, each in classes.items()} == {"elementwise": 300, "large product": 300}
    fits = script.fit_all(classes)
    known = {"compute": COMPUTE, "call_us": CALL_US, "watts": WATTS}  # no product is bound by bandwidth
    for name, value in known.items():
        assert fits["large product"][name] == pytest.approx(value, rel=0.15), name
    assert fits["elementwise"]["bandwidth"] == pytest.approx(BANDWIDTH, rel=0.02)
    errors = script.left_out(classes)["large product"]
    assert sorted(errors) == sorted(sheet(name).title for name in DEVICES)
    assert max(np.median(np.abs(each)) for each in errors.values()) < 0.05


def test_the_band_holds_at_least_four_fifths_of_the_kernels_of_a_new_device() -> None:
    """Devices differ by 20 %, kernels within one by 10 %, as lognormal errors of eight devices."""
    random = np.random.default_rng(1)
    held = []
    for _ in range(2000):
        errors = {str(i): random.normal(random.normal(0, 0.2), 0.1, 50) for i in range(8)}
        new = random.normal(random.normal(0, 0.2), 0.1, 50)
        held.append(np.mean(np.abs(new) <= script.band(errors)))
    assert np.mean(held) == pytest.approx(0.83, abs=0.03)


def test_the_csv_has_a_row_for_any_device_and_one_for_each(tmp_path: Path) -> None:
    path = synthetic(tmp_path / "kernels.csv", 0.1)
    classes = script.read([path])
    rows = pd.DataFrame(script.rows_of(classes, script.left_out(classes)))
    assert rows.groupby("class")["device"].nunique().to_dict() == {"elementwise": 6, "large product": 6}
    own = rows[rows["device"] != "any"]
    assert own["factor"].astype(float).between(0.9, 1.1).all()
    # 80 % of a lognormal error of 10 % are within 13.7 %
    assert own["high"].astype(float).mean() == pytest.approx(np.exp(0.128), rel=0.05)
    covered = pd.DataFrame(script.coverage(classes, script.left_out(classes)))["covered"].astype(float)
    assert covered.mean() > 0.75
    assert "kernels.csv (SHA-256" in script.provenance([path])


def test_what_a_measured_kernel_has_to_do() -> None:
    assert script.work_of("bmm", [3, 128, 256, 512]).product == Product(3, 128, 256, 512)
    assert script.work_of("linear", [1, 128, 256, 512]).kind == "large product"
    assert script.work_of("linear", [1, 100, 256, 512]).kind == "skinny product"
    assert script.work_of("linear", [1, 128, 255, 512]).kind == "unaligned product"
    convolution = script.work_of("conv", [2, 16, 32, 3, 9, 1, 1])
    moved = 4 * (2 * 16 * 81 + 2 * 32 * 81 + 16 * 32 * 9)
    unfolded = Product(1, 2 * 81, 32, 16 * 9)
    assert convolution == Work("convolution 3x3", moved, unfolded, winograd_of(2, 9, 9, 16, 32))
    assert script.work_of("add", [10, 20]) == Work("elementwise", 2400)
    assert script.work_of("relu", [10, 20]) == Work("elementwise", 1600)
    assert script.work_of("ln", [10, 20]) == Work("norm", 1600)
    assert script.work_of("softmax", [10, 20]) == Work("row reduction", 1600, row_bytes=80, again_bytes=800)
    with pytest.raises(ValueError, match="kernel 5"):
        script.work_of("conv", [2, 16, 32, 5, 9, 1, 1])


def test_a_device_without_a_data_sheet_is_told(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("device,operator,d1,d2,d3,d4,d5,d6,d7,ms\nNVIDIA Test,add,8,8,,,,,,0.1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no data sheet with the title 'NVIDIA Test'"):
        script.read([path])
