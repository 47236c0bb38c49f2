"""Fits the efficiencies behind predicted times to measured kernels and networks, and tests them on devices left out.

Writes ctxbench/plugins/predict/efficiencies.csv and devices.csv, and for the docs results/prediction/networks.csv, of
timm's networks under AMP.
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
from fit_kernels import Array, Fit, Group, Kernels
from network_passes import FILE
from prediction_data import READERS, SPLITS, Measured
from prediction_model import Model, fold, left_out, network_rows, network_table

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
        {**first, "dtype": dtype, "between": f"{found.device_sd:.3g}", "watts": f"{watts:.4g}"}
        for dtype, watts in sorted(found.watts.items())
    ]
    devices: list[dict[str, object]] = []
    for group, own in sorted(found.fits.items()):
        kernels, named, cards = classes.get(group), {"class": group[0], "dtype": group[1]}, found.cards.get(group, {})
        titles = {*cards, *(np.unique(kernels.device) if kernels else ())}
        shares = {name: f"{own[name]:.4g}" for name in ("compute", "bandwidth")}
        call = {"call_us": f"{own['call_us']:.3g}"} if kernels and kernels.alone.any() else {}
        count = {"devices": len(titles), "kernels": len(kernels.seconds) if kernels else 0}
        spreads = {"between": f"{found.between[group]:.3g}", "within": f"{found.within[group]:.3g}"}
        rows.append({**named, **count, "passes": found.passes.get(group, ""), **shares, **spreads, **call})
        for unit, errors in _errors(kernels, own) if kernels else ():
            title, era = unit.split("|")
            factor = {"kernels": len(errors), "factor": f"{np.exp(np.median(errors)):.3g}"}
            devices.append({**named, "device": title, "era": era, **factor})
        for title, (log, tell) in cards.items():
            devices.append({**named, "device": title, "era": "cuda", "kernels": tell, "factor": f"{np.exp(log):.3g}"})
    return pd.DataFrame(rows), pd.DataFrame(devices)


def _errors(kernels: Kernels, fit: Fit) -> list[tuple[str, Array]]:
    """The errors of each device with the software of an era."""
    return [(str(unit), kernels.of(kernels.units == unit).errors(fit)) for unit in np.unique(kernels.units)]


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
    folds = fold(read(data))
    model = folds.model()
    table = network_table(data, given.seen, model)
    fits, errors = left_out(table)
    found = model.with_networks(table, fit_networks.fit(table), errors, folds.classes)
    folder, results = ROOT / "ctxbench" / "plugins" / "predict", ROOT / "results" / "prediction"
    for name, frame in zip(("efficiencies.csv", "devices.csv"), tables(folds.classes, found), strict=True):
        text = frame.to_csv(index=False, lineterminator="\n")
        (folder / name).write_text(provenance(data) + text, encoding="utf-8")
        print(f"wrote {(folder / name).relative_to(ROOT)}", flush=True)
    rows = network_rows(model, table, fits, errors, folds.classes)
    pd.DataFrame(rows).to_csv(results / "networks.csv", index=False, lineterminator="\n")
    print("wrote results/prediction/networks.csv: band_widths.py writes its bands")


if __name__ == "__main__":
    main()
