"""Table of the classes of public packages that `make extras` counts: version, settings, input, parameters and MACs.

`python research/public_classes.py` writes results/public-classes/classes.csv in a minute, where the extra `public` is
installed. tests/test_public_packages.py has the classes, and holds each count against the real module.
"""

import csv
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_public_packages import CASES, TABLE, counted, named


def main() -> None:
    of_import = packages_distributions()
    packages = [of_import[reference.partition(":")[0].partition(".")[0]][0] for reference, *_ in CASES]
    rows = [
        {"package": package, "version": version(package), **named(*each), **counted(*each)}
        for package, each in zip(packages, CASES, strict=True)
    ]
    TABLE.parent.mkdir(exist_ok=True)
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
