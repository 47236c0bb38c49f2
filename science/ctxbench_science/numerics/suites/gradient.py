"""Claims of the suite `gradient` about section 2.3 of Geng et al., ICLR 2021."""

import json

import pandas as pd

from ctxbench.base.fits import fit_line
from ctxbench.base.number import Number
from ctxbench_science.claims.findings import Claim, Finding, Missing, Outcome, Rows, each_of, for_each, measured
from ctxbench_science.numerics.hams import HAMS

# What counts as approximately right: the least cosine of the two gradients.
ALIGNED = 0.9
# Which share of its first value a norm that vanishes has left at the largest K.
VANISHED = 0.1
# Which share of BPTT's time for a step counts as none.
CONSTANT = 0.1


def large(rows: Rows) -> Rows:
    return rows.extreme("height")


def small(rows: Rows) -> Rows:
    """The rows at the input at which the Jacobians fit."""
    return rows.extreme("height", largest=False)


def slope(values: "pd.Series[float]") -> Number:
    if len(values) < 3:
        raise Missing("fewer than 3 values of steps")
    return fit_line(values.index, values).slope


@each_of(HAMS)
def memory(rows: Rows, ham: str) -> Outcome:
    one, bptt = (
        large(rows).of(module=ham, gradient=gradient).numbers("memory_train_predicted_bytes", "steps") / 1024
        for gradient in ("one_step", "bptt")
    )
    fit, span = slope(bptt), one.max() - one.min()
    text = f"one step moves by {span:.0f} KiB over all K, all steps +{fit.value:.0f} KiB a step"
    return bool(span == 0 and fit.low > 0), text


def time(rows: Rows) -> Finding:
    def backward(ham: str, gradient: str) -> Number:
        own = large(rows).of(module=ham, gradient=gradient)
        return slope(own.times("train", "steps") - own.times("infer", "steps"))

    def is_constant(ham: str) -> Outcome:
        one, bptt = (backward(ham, gradient) for gradient in ("one_step", "bptt"))
        text = f"one step {one.text()}, all steps {bptt.text()}"
        constant = bptt.low > 0 and one.high <= CONSTANT * bptt.low
        grows = bptt.high <= 0 or one.low > CONSTANT * bptt.high
        return (True if constant else False if grows else None), f"{text} ms a step"

    return for_each(HAMS, is_constant)


@each_of(HAMS)
def direction(rows: Rows, ham: str) -> Outcome:
    texts, least = [], 1.0
    for height, own in rows.of(module=ham, gradient="one_step").split("height").items():
        cosines = own.numbers("gradient_cosine_input", "steps", least=1)
        sizes = own.rows[0]
        shape = f"[{sizes['batch']}, {sizes['channels']}, {height}, {sizes['width']}]"
        texts.append(f"{cosines.min():.2f} to {cosines.max():.2f} at {shape}")
        least = min(least, float(cosines.min()))
    return least >= ALIGNED, ", ".join(reversed(texts))


def parameters(rows: Rows) -> Finding:
    texts = []
    for ham in HAMS:
        row = large(rows).row("gradient_by_parameter", module=ham, steps=6, gradient="one_step")
        try:
            found = json.loads(row["gradient_by_parameter"])
            pairs = ", ".join(f"{name} {cosine:.2f} ({ratio:.2f})" for name, (cosine, ratio) in found.items())
        except (ValueError, TypeError, AttributeError):
            raise Missing(f"gradient_by_parameter of {ham} cannot be read") from None
        texts.append(f"{ham}: {pairs}")
    return measured("; ".join(texts))


@each_of(HAMS)
def vanishing(rows: Rows, ham: str) -> Outcome:
    norms = small(rows).of(module=ham, gradient="bptt").numbers("jacobian_bases", "steps")
    first, last = norms.index[0], norms.index[-1]
    text = f"{norms[first]:.3g} at K = {first:g}, {norms[last]:.3g} at K = {last:g}"
    return bool(norms[last] < VANISHED * norms[first]), text


@each_of(HAMS)
def explosion(rows: Rows, ham: str) -> Outcome:
    one, bptt = (
        small(rows).of(module=ham, gradient=gradient).numbers("jacobian_x", "steps")
        for gradient in ("one_step", "bptt")
    )
    ratios = (bptt / one).dropna()
    if ratios.empty:
        raise Missing("no K with both gradients")
    text = f"{ratios.min():.1f} to {ratios.max():.1f} times as large, {ratios.iloc[-1]:.1f} at K = "
    return bool(ratios.min() > 1), f"{text}{ratios.index[-1]:g}"


@each_of(("ham_cd", "ham_vq"))
def contraction(rows: Rows, ham: str) -> Outcome:
    own = small(rows).of(module=ham, gradient="bptt")
    norms, radii = (own.numbers(column, "steps") for column in ("step_norm", "step_radius"))
    first, last = norms.index[0], norms.index[-1]
    text = f"norm {norms[first]:.3g} at K = {first:g}, {norms[last]:.3g} at K = {last:g}; spectral radius "
    return bool(norms.max() < 1), f"{text}{radii[first]:.3g}, {radii[last]:.3g}"


CLAIMS = (
    Claim(
        "Training memory is O(1) in K with one step and O(K) with all steps",
        "predicted memory is the same at every K with one step; its slope over K with all steps is above 0",
        memory,
    ),
    Claim(
        "So is the time of the backward pass",
        f"training less inference: the slope over K with one step is at most {100 * CONSTANT:g} % of that with all "
        "steps, by their 95 % intervals, through times of three or more processes each",
        time,
    ),
    Claim(
        "The one-step gradient's direction is approximately right",
        f"its cosine with the gradient through all steps, at the module's input, is at least {ALIGNED} "
        "at every K and input",
        direction,
    ),
    Claim("How near the gradients of the parameters are", "cosine (ratio of lengths) at K = 6", parameters),
    Claim(
        "Proposition 3: the gradient at the initial bases, dY/dM0, vanishes as K grows",
        f"its norm at the largest K is below {100 * VANISHED:g} % of that at the smallest",
        vanishing,
    ),
    Claim(
        "All steps make the Jacobian at the input, dY/dX, larger than one step does",
        "its norm is larger at every K",
        explosion,
    ),
    Claim(
        "The assumption of the three propositions: a step is a contraction",
        "the norm of its Jacobian is below 1 at every K",
        contraction,
    ),
)
