"""Fits the efficiencies behind predicted times to measured kernels and networks.

Writes ctxbench/plugins/predict/efficiencies.csv and devices.csv, and for the docs results/prediction/networks.csv.gz,
of timm's networks under AMP.
What the files of DATA hold is in prediction_data.py and network_passes.py; which of their rows are used is in
prediction_splits.toml. No number of a paper that ctxbench reproduces is used.

Run: python research/calibrate_time.py DATA
"""

import argparse
import hashlib
from collections.abc import Mapping
from pathlib import Path

import fit_networks
import numpy as np
import pandas as pd
from fit_kernels import Group, Kernels, kernels_of
from network_passes import FILE
from prediction_data import PACKED, READERS, SPLITS, Measured
from prediction_model import Model, model, network_rows, network_table, rows_for_band

ROOT = Path(__file__).resolve().parents[1]


def read(data: Path) -> list[Measured]:
    """The measurements that calibrate."""
    aside = SPLITS["validation"]["kernelbench_operators.csv"]
    found = [each for name, reader in READERS.items() if (data / name).exists() for each in reader(data / name)]
    return [each for each in found if not (each.source == "KernelBench" and each.sheet.title in aside)]


def tables(classes: Mapping[Group, Kernels], found: Model) -> tuple[pd.DataFrame, pd.DataFrame]:
    """efficiencies.csv and devices.csv."""
    first = {"class": "any", "dtype": "", "devices": "", "kernels": "", "passes": "", "compute": "", "bandwidth": ""}
    rows: list[dict[str, object]] = [
        {**first, "dtype": dtype, "watts": f"{watts:.4g}", "sd": f"{found.kernel_sd:.3g}"}
        for dtype, watts in sorted(found.watts.items())
    ]
    for group, own in sorted(found.fits.items()):
        kernels, named = classes.get(group), {"class": group[0], "dtype": group[1]}
        shares = {name: f"{own[name]:.4g}" for name in ("compute", "bandwidth")}
        call = {"call_us": f"{own['call_us']:.3g}"} if kernels and kernels.alone.any() else {}
        counts = {
            "devices": len(np.unique(kernels.device)) if kernels else 0,
            "kernels": len(kernels.seconds) if kernels else 0,
            "passes": found.passes.get(group, ""),
        }
        rows.append({**named, **counts, **shares, **call})
    devices = [
        {"device": title, "dtype": dtype, "era": era, "measured": count, "factor": f"{np.exp(log):.3g}"}
        for (title, dtype, era), (log, count) in sorted(found.cards.items())
    ]
    return pd.DataFrame(rows), pd.DataFrame(devices)


def provenance(data: Path) -> str:
    """First lines of both files."""
    digests = ", ".join(
        f"{name} (SHA-256 {hashlib.sha256((data / name).read_bytes()).hexdigest()[:16]})"
        for name in (*READERS, FILE)
        if (data / name).exists()
    )
    return (
        f"# Written by research/calibrate_time.py from {digests}.\n# Sources and licences: docs/plugins/predict.md.\n"
    )


def arguments(about: str) -> argparse.Namespace:
    """The folders of a command of this file or the next."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="folder with the files of prediction_data.py")
    parser.add_argument("--seen", type=Path, default=ROOT / ".seen", help="keeps what meta has seen of networks")
    return parser.parse_args()


def main() -> None:
    given = arguments(__doc__ or "")
    data = given.data
    classes = kernels_of(read(data))
    of_kernels = model(classes)
    table = network_table(data, given.seen, of_kernels)
    found = of_kernels.with_networks(table, fit_networks.fit(table))
    folder, results = ROOT / "ctxbench" / "plugins" / "predict", ROOT / "results" / "prediction"
    for name, frame in zip(("efficiencies.csv", "devices.csv"), tables(classes, found), strict=True):
        text = frame.to_csv(index=False, lineterminator="\n")
        (folder / name).write_text(provenance(data) + text, encoding="utf-8")
        print(f"wrote {(folder / name).relative_to(ROOT)}", flush=True)
    rows = [*network_rows(of_kernels, table), *rows_for_band(found, data, given.seen)]
    pd.DataFrame(rows).to_csv(results / "networks.csv.gz", index=False, lineterminator="\n", compression=PACKED)
    print("wrote results/prediction/networks.csv.gz: band_widths.py writes its bands")


if __name__ == "__main__":
    main()
