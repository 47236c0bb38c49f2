"""Claims of the suite `deploy` about deployed runtimes."""

from functools import partial

import scipy  # which imports its parts when they are asked for

from ctxbench_science.claims.findings import (
    KEPT,
    Claim,
    Finding,
    Missing,
    Outcome,
    Rows,
    faster,
    keeps,
    measured,
    tally,
)

NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def runs(rows: Rows, runtime: str) -> Finding:
    def ends(module: str) -> Outcome:
        failed = rows.of(module=module, execution=runtime).failed()
        for row in rows.of(module=module).rows:
            if row["execution"] == "eager" and row["status"] != "ok":
                raise Missing(f"eager execution ended with {row['status']}")
            if row["execution"] in ("eager", runtime) and row["status"] == "ok" and row["latency_infer_ms"] is None:
                raise Missing("no latency_infer_ms")
        return not failed, f"({failed[0]['status']})" if failed else ""

    return tally(rows.modules(), ends)


def exact(rows: Rows, runtime: str) -> Finding:
    return tally(_modules(rows), lambda each: keeps(_part(rows, each), "infer", runtime))


def gains(rows: Rows, runtime: str, over: str = "eager") -> Finding:
    def gain(each: str) -> Outcome:
        return faster(*(_part(rows, each).time("infer", execution=execution) for execution in (runtime, over)))

    return tally(_modules(rows), gain, ("faster", "slower"))


def order(rows: Rows, runtime: str) -> Finding:
    """The rank correlation with eager times, and the modules that gain or lose most places, at each size."""
    texts = []
    for height, part in rows.split("height").items():
        times: dict[str, tuple[float, float]] = {}
        for module in part.modules():
            try:
                first, second = (part.time("infer", module=module, execution=e).value for e in ("eager", runtime))
                times[module] = first, second
            except Missing:
                continue
        if len(times) < 3:
            raise Missing("fewer than three modules have both times")
        correlation = float(scipy.stats.spearmanr(*zip(*times.values(), strict=True)).statistic)
        places = [sorted(times, key=lambda module: times[module][side]) for side in (0, 1)]
        moved = {module: places[0].index(module) - places[1].index(module) for module in times}
        most = sorted(moved, key=lambda module: -abs(moved[module]))[:4]
        named = ", ".join(f"{module} {places[0].index(module) + 1} to {places[1].index(module) + 1}" for module in most)
        texts.append(f"H = {height}: rank correlation {correlation:.2f} over {len(times)} modules; places {named}")
    return measured("; ".join(texts))


def _modules(rows: Rows) -> list[str]:
    """Each module at each height, as one name."""
    return [f"{module} H={height}" for height, part in rows.split("height").items() for module in part.modules()]


def _part(rows: Rows, name: str) -> Rows:
    module, _, height = name.partition(" H=")
    return rows.of(module=module, height=int(height))


APART = "the 95 % intervals of the two times, over three or more processes each, do not overlap; times as fast"
ORDER = "of the medians; places from the fastest on, eager to deployed, of the four modules that change most"
ASKED = (
    ("Every module runs in {}", "no row of it failed", runs),
    ("{} keeps the output", KEPT, exact),
    ("A module is faster in {} than eager", APART, gains),
    ("The order of modules in {}", ORDER, order),
)
CLAIMS = (
    *(
        Claim(text.format(name), criterion, partial(decide, runtime=runtime))
        for text, criterion, decide in ASKED
        for runtime, name in NAMES.items()
    ),
    Claim(
        "An export for any size is as fast as one for a fixed size",
        f"not slower: {APART}",
        partial(gains, runtime="onnxruntime-dynamic", over="onnxruntime"),
    ),
)
