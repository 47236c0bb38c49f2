"""Claims of the suite `compile` about torch.compile."""

from functools import partial

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


def runs(rows: Rows) -> Finding:
    def compiles(module: str) -> Outcome:
        compiled = rows.of(module=module, execution="compile")
        for row in compiled.failed():
            return False, f"({row['status']}: {row['message']})"
        for mode in ("infer", "train"):
            compiled.number(f"compile_{mode}_s")
        return True, ""

    return tally(rows.modules(), compiles)


def gains(rows: Rows, mode: str) -> Finding:
    return tally(rows.modules(), partial(_gain, rows, mode), ("faster", "slower"))


def _gain(rows: Rows, mode: str, module: str) -> Outcome:
    return faster(*(rows.time(mode, module=module, execution=execution) for execution in ("compile", "eager")))


def exact(rows: Rows, mode: str) -> Finding:
    return tally(rows.modules(), lambda module: keeps(rows, mode, "compile", module=module))


def repays(rows: Rows) -> Finding:
    """Number of training passes that save the seconds of compiling, where compiling makes a module faster."""
    passes = {}
    for module in rows.modules():
        try:
            if _gain(rows, "train", module)[0]:
                eager, compiled = (rows.time("train", module=module, execution=e).value for e in ("eager", "compile"))
                seconds = rows.number("compile_train_s", module=module, execution="compile")
                passes[module] = 1000 * seconds / (eager - compiled)
        except Missing:
            continue
    if not passes:
        raise Missing("no module trains faster when compiled, by these intervals")
    return measured(", ".join(f"{name} {passes[name]:,.0f}" for name in sorted(passes, key=passes.__getitem__)))


APART = "the 95 % intervals of eager and compiled, over three or more processes each, do not overlap; times as fast"
# What is compared with is eager, too: that the two differ does not say which one is wrong.
AS_EAGER = f"{KEPT}; that of float64 is eager"
CLAIMS = (
    Claim("Every module compiles", "no compiled row of this run failed", runs),
    Claim("The compiled gradient is the eager one", AS_EAGER, lambda rows: exact(rows, "train")),
    Claim("Compiling keeps the output", KEPT, lambda rows: exact(rows, "infer")),
    Claim("A compiled module trains faster than an eager one", APART, lambda rows: gains(rows, "train")),
    Claim("A compiled inference is faster than an eager one", APART, lambda rows: gains(rows, "infer")),
    Claim(
        "After how many training passes compiling has paid off",
        "of modules that are faster compiled by these intervals",
        repays,
    ),
)
