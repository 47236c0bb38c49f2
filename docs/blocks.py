"""The numbers of the results browser: what is known of each block, in `blocks.csv`, which the site shows as a page."""

import csv
from pathlib import Path
from typing import Any

from headlines import recalled
from lists import built_in, stored_run

from ctxbench.base.mode import MODES
from ctxbench.base.number import significant
from ctxbench.model.case import Case
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.portable.beside import on_targets
from ctxbench.plugins.predict.operators import operators_in
from ctxbench.plugins.predict.passes import time_of
from ctxbench.plugins.predict.sheet import sheets
from ctxbench_science.twins.beside import gains_of

DOCS = Path(__file__).parent
SHAPE = (1, 512, 64, 64)
CARDS = ("t4", "a100-40gb", "h100-sxm")


def rows() -> list[dict[str, Any]]:
    """Each block of the registry with its numbers at SHAPE; what is not known is empty."""
    measured = {row["module"]: row for row in stored_run("field-cpu").rows if row["height"] == SHAPE[2]}
    learned = {row["module"]: row for row in recalled() if not row["changed"]}
    entries = sorted(built_in(), key=lambda each: each.key)
    keys = [entry.key for entry in entries]
    (gains,) = (cells for column, cells in gains_of(keys)[0] if column.key == "gain_mmsegmentation")
    (_, (_, phones)) = on_targets(keys)[0]
    found = []
    for entry, targets, gain in zip(entries, phones, gains, strict=True):
        row = measured.get(entry.key, {})
        each: dict[str, Any] = {"block": entry.key, "family": entry.family}
        params, macs = (entry.closed_form(name, SHAPE) for name in ("params", "macs"))
        each |= {"params_k": params / 1e3, "macs_g": macs / 1e9}
        for mode in MODES:
            profile = predict_peak(*Case(entry.key, entry.reference, {}, SHAPE).on_meta(), mode=mode)
            operators = operators_in(profile)
            each[f"memory_{mode}_mib"] = profile.allocated_bytes / 2**20
            each |= {f"{card}_{mode}_ms": time_of(operators, sheets()[card]).time.value for card in CARDS}
            each[f"cpu_{mode}_ms"] = row.get(f"latency_{mode}_ms")
        own = learned.get(entry.key, {})
        each |= {f"{kind}_percent": own.get(f"recall_{kind}") for kind in ("segment", "lookup")}
        each |= {"phones_targets": targets.value, "gain_points": gain.value, "title": entry.title}
        found.append({key: significant(value) if isinstance(value, float) else value for key, value in each.items()})
    return found


def write() -> None:
    """Write blocks.csv."""
    found = rows()
    with (DOCS / "blocks.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*found[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
