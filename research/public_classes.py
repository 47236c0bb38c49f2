"""Tables of the classes of public packages that `make extras` counts: version, settings, parameters and MACs.

`python research/public_classes.py` writes results/public-classes in minutes, where the extra `public` is installed.
Of classes.csv tests/test_public_packages.py has the classes; sweep.csv has its own, and how a person has
judged each refusal. The tests hold each count against the real module.
"""

import csv
import json
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins" / "verify"))

import test_public_sweep as sweep
from test_public_packages import CASES, TABLE, counted, named


def main() -> None:
    of_import = packages_distributions()

    def package_of(reference: str) -> dict[str, str]:
        package = of_import[reference.partition(":")[0].partition(".")[0]][0]
        return {"package": package, "version": version(package)}

    _write(TABLE, [{**package_of(each[0]), **named(*each), **counted(*each)} for each in CASES])
    rows = []
    for row in sweep.stored():
        print(row["class"], flush=True)
        found = sweep.tried(row["class"], json.loads(row["settings"]))
        asked = {name: row[name] for name in ("class", "settings", "judged")}
        rows.append({**package_of(row["class"]), **asked, **found})
    _write(sweep.TABLE, rows)


def _write(table: Path, rows: Sequence[dict[str, str]]) -> None:
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
