"""Gradients, Jacobians and reconstruction errors against results worked out another way; Propositions 1 to 3."""

import json
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from ctxbench import registry
from ctxbench.model.case import Case, Measure
from ctxbench.model.conditions import Shape
from ctxbench.model.messages import Values
from ctxbench.model.metrics import metrics
from ctxbench.modules.ham_cd import HamCD
from ctxbench.modules.ham_vq import HamVQ
from ctxbench.worker.measurement import CaseMeasurement
from ctxbench_science.numerics import gradient, jacobian, reconstruction
from ctxbench_science.numerics.decomposition import NOISE, RANK, low_rank_map

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

SMALL: Shape = (1, 6, 4, 3)
every_ham = pytest.mark.parametrize("ham", ["ham_nmf", "ham_cd", "ham_vq"])


def computed_by(compute: Any, module: str, shape: Shape = SMALL, **hparams: Any) -> dict[str, Any]:
    """Values that are reported of a case, without notes."""
    found: dict[str, Any] = {}

    def take(message: object) -> None:
        assert isinstance(message, Values)
        assert not message.notes
        found.update(message.values)

    compute(CaseMeasurement(Case(module, registry.get(module).reference, hparams, shape), Measure(), take))
    return found


def computed(metric: str, module: str, shape: Shape = SMALL, **hparams: Any) -> dict[str, Any]:
    return computed_by(metrics()[metric].compute, module, shape, **hparams)


def draws(size: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_map_is_low_rank_plus_noise_without_negative_numbers() -> None:
    clean, noisy = low_rank_map((2, 24, 10, 9), seed=3)
    for image in clean.flatten(2):
        values = torch.linalg.svdvals(image)
        assert values[RANK - 1] > 1e-2 * values[0]
        assert values[RANK] < 1e-12 * values[0]
        assert image.square().mean().item() == pytest.approx(1)
    assert noisy.min() == 0
    inside = clean > 4 * NOISE
    assert (noisy - clean)[inside].std().item() == pytest.approx(NOISE, rel=0.25)
    assert torch.equal(noisy, low_rank_map((2, 24, 10, 9), seed=3)[1])


def test_cosine_and_ratio_worked_by_hand() -> None:
    one, other = torch.tensor([3.0, 0.0]), torch.tensor([3.0, 4.0])
    assert gradient.compared(one, other) == pytest.approx((0.6, 0.6))
    assert gradient.compared(other, one) == pytest.approx((0.6, 5 / 3))
    assert gradient.compared(one, torch.zeros(2)) == (0, 0)
    assert gradient.compared(one, 1e-15 * other) == (0, 0)


@every_ham
def test_gradients_behind_the_ham_are_equal_and_those_before_it_differ(ham: str) -> None:
    found = computed("gradient", ham, steps=2, rank=2)
    parameters = json.loads(found["gradient_by_parameter"])
    for name in ("upper.weight", "norm.weight", "norm.bias"):
        assert parameters[name] == pytest.approx([1, 1], abs=1e-12)
    assert -1 <= found["gradient_cosine_input"] < 0.999
    assert found["gradient_cosine_parameters"] < 0.999
    assert found["gradient_ratio_parameters"] > 0


def test_the_gradient_is_exact_where_the_steps_carry_none() -> None:
    """In one dimension CD's unit bases are signs."""
    found = computed("gradient", "ham_cd", (1, 1, 4, 5), d=1, rank=2)
    assert found["gradient_cosine_input"] == pytest.approx(1)
    assert found["gradient_ratio_input"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("metric", "module", "shape", "hparams", "reason"),
    [
        ("gradient", "sa", SMALL, {}, "the module has no choice between the gradients one_step and bptt"),
        ("gradient", "ham_cd", SMALL, {"gradient": "bptt"}, "it is the gradient through all steps"),
        ("gradient", "ham_cd", (1, 512, 64, 64), {}, "the input has more than 1,048,576 elements"),
        ("jacobian", "sa", SMALL, {}, "the module does not factor its input"),
        ("jacobian", "ham_vq", SMALL, {"without": "ham"}, "the module does not factor its input"),
        ("jacobian", "ham_vq", (1, 64, 32, 32), {"rank": 2}, "the Jacobian, 65,536 by 65,536, has more than 2,097,152"),
        ("reconstruction", "linear", (1, 8, 4, 4), {}, "the module does not factor its input"),
        ("reconstruction", "ham_cd", (1, 512, 64, 64), {}, "the input has more than 1,048,576 elements"),
    ],
)
def test_a_metric_that_does_not_apply_says_why(
    metric: str, module: str, shape: Shape, hparams: dict[str, Any], reason: str
) -> None:
    found = computed(metric, module, shape, **hparams)
    assert set(found) <= {f"{metric}_reason", "step_reason"}
    assert found[f"{metric}_reason"].startswith(reason)


def test_learned_bases_have_no_one_step_gradient() -> None:
    found = computed("gradient", "ham_cd", init="learned", rank=2, gradient="one_step")
    assert found["gradient_reason"].startswith("the one-step gradient does not reach learned bases")


@pytest.mark.parametrize(
    ("hparams", "sentence"), [({"steps": 0}, "steps is 0"), ({"rank": 13}, "rank = 13 is more than")]
)
@pytest.mark.parametrize("metric", ["jacobian", "reconstruction"])
def test_impossible_settings_are_errors(metric: str, hparams: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        computed(metric, "ham_cd", **hparams)


def test_a_jacobian_is_that_of_a_linear_map() -> None:
    matrix = draws((3, 4), 0)
    torch.testing.assert_close(jacobian.jacobian(lambda x: matrix @ x, draws((4,), 1)), matrix)
    torch.testing.assert_close(
        jacobian.jacobian(lambda x: torch.zeros(2, dtype=x.dtype), draws((4,), 1)).sum().item(), 0.0
    )
    assert jacobian.effective_rank(torch.tensor([2.0, 2.0, 2.0, 0.0])) == pytest.approx(3)
    assert jacobian.effective_rank(torch.zeros(3)) == 0


def test_the_one_step_jacobian_of_cd_is_its_ridge_projection() -> None:
    """dY/dX of M (M^T M + beta I)^-1 M^T X, with M constant, is that matrix for each column."""
    found = computed("jacobian", "ham_cd", rank=3, beta=0.25)
    norms = []
    for seed in range(jacobian.SEEDS):
        torch.manual_seed(seed)
        model = HamCD(6, rank=3, beta=0.25).double()
        x = model.matrix(low_rank_map(SMALL, seed)[1])
        bases = model.decompose(x, model.initial_bases(x, 1))[1][0]
        norms.append(
            torch.linalg.matrix_norm(bases @ torch.linalg.inv(bases.T @ bases + 0.25 * torch.eye(3)) @ bases.T, 2)
        )
    assert found["jacobian_x"] == pytest.approx(torch.stack(norms).median().item())
    assert found["jacobian_bases"] == 0
    assert found["step_reason"] == 'the steps are those of gradient = "bptt"'


def test_the_step_of_the_nmf_has_codes_in_its_state() -> None:
    found = computed("jacobian", "ham_nmf", rank=3, gradient="bptt")
    assert found["step_reason"] == "its codes are part of the state that a step maps"
    assert found["jacobian_bases"] > 0


def test_errors_of_reconstruction_worked_by_hand() -> None:
    x = torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64))[None]
    assert reconstruction.least_error(x, 1) == pytest.approx(math.sqrt(5 / 14))
    assert reconstruction.least_error(x, 3) == 0
    assert reconstruction.relative_error(x, torch.zeros_like(x)) == 1


@every_ham
@pytest.mark.parametrize("init", ["random", "fixed", "online"])
def test_no_ham_is_better_than_the_best_of_its_rank(ham: str, init: str) -> None:
    found = computed("reconstruction", ham, (1, 12, 6, 6), rank=4, init=init)
    assert found["reconstruction_least"] < found["reconstruction_error"] < 1
    assert found["reconstruction_spread"] > 0


def test_more_steps_and_warm_bases_lower_the_error_of_nmf() -> None:
    shape = (1, 12, 6, 6)
    one, many = (computed("reconstruction", "ham_nmf", shape, rank=4, steps=k) for k in (1, 20))
    online = computed("reconstruction", "ham_nmf", shape, rank=4, steps=1, init="online")
    assert many["reconstruction_error"] < 0.95 * one["reconstruction_error"]
    assert online["reconstruction_error"] < 0.95 * one["reconstruction_error"]
    assert many["reconstruction_least"] == one["reconstruction_least"]


def test_a_step_of_nmf_has_a_family_of_fixed_points_and_is_no_contraction() -> None:
    """(M D, D^-1 Z) is fixed if (M, Z) is, so that the step's Jacobian at (M, Z) has one eigenvalue of 1 a base."""
    x = draws((4, 2), 1).abs() @ draws((2, 7), 2).abs() + 0.1 * draws((4, 7), 3).abs()
    bases, codes = draws((4, 2), 4).abs(), draws((7, 2), 5).abs()

    def step(state: Tensor) -> Tensor:
        """One step of the paper's Algorithm 2 on the bases `[4, 2]` and the codes `[7, 2]`, stacked."""
        bases, codes = state[:4], state[4:]
        codes = codes * (x.T @ bases) / (codes @ (bases.T @ bases))
        bases = bases * (x @ codes) / (bases @ (codes.T @ codes))
        return torch.cat([bases, codes])

    state = torch.cat([bases, codes])
    for _ in range(20_000):
        state = step(state)
    scaled = torch.cat([state[:4] * torch.tensor([2.0, 0.5]), state[4:] / torch.tensor([2.0, 0.5])])
    torch.testing.assert_close(step(state), state, rtol=0, atol=1e-10)
    torch.testing.assert_close(step(scaled), scaled, rtol=0, atol=1e-10)
    sizes = torch.linalg.eigvals(jacobian.jacobian(step, state)).abs().sort(descending=True).values
    assert sizes[:2].tolist() == pytest.approx([1, 1], abs=1e-6)


@pytest.mark.parametrize("cls", [HamVQ, HamCD])
def test_at_a_temperature_of_1_the_bases_of_k_means_become_one(cls: type[HamVQ] | type[HamCD]) -> None:
    for temperature, several in ((1.0, False), (0.01, True)):
        torch.manual_seed(0)
        model = cls(64, rank=8, temperature=temperature).double()
        with torch.no_grad():
            values = torch.linalg.svdvals(model.solve(model.matrix(low_rank_map((1, 64, 8, 8))[1]), 1)[0])
        assert (values[1] > 1e-6 * values[0]) == several


class Contraction:
    """h <- F(h, x) = tanh(A h + B x), y = G h (equations 10 and 11), with |A| = 0.6, so that L_h <= 0.6."""

    def __init__(self) -> None:
        self.a, self.b, self.g = draws((5, 5), 1), 0.1 * draws((5, 4), 2), draws((3, 5), 3)
        self.a *= 0.6 / torch.linalg.matrix_norm(self.a, 2)

    def step(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.a @ h + self.b @ x)

    def run(self, h: Tensor, x: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            h = self.step(h, x)
        return h


def test_proposition_1_a_contraction_converges_linearly() -> None:
    model, x = Contraction(), draws((4,), 4)
    limit = model.run(draws((5,), 5), x, 500)
    distances = [(model.run(draws((5,), 6), x, k) - limit).norm().item() for k in range(20)]
    assert all(after <= 0.6 * before for before, after in pairwise(distances))
    assert distances[19] > 1e-12


def test_propositions_2_and_3_for_a_contraction() -> None:
    model, x, start = Contraction(), draws((4,), 4), draws((5,), 6)
    fixed = model.run(start, x, 500)
    at_state = jacobian.jacobian(lambda h: model.step(h, x), fixed)
    at_input = jacobian.jacobian(lambda x: model.step(fixed, x), x)
    implicit = model.g @ torch.linalg.solve(torch.eye(5, dtype=x.dtype) - at_state, at_input)
    for steps, tolerance in ((5, None), (80, 1e-10)):
        whole = jacobian.jacobian(lambda x: model.g @ model.run(start, x, steps), x)  # noqa: B023  # called in this turn of the loop
        if tolerance is None:
            assert (whole - implicit).abs().max() > 1e-3
        else:
            torch.testing.assert_close(whole, implicit, rtol=0, atol=tolerance)
    at_start = jacobian.jacobian(lambda h: model.g @ model.run(h, x, 80), start)
    assert at_start.abs().max() < 1e-12
    norm = torch.linalg.matrix_norm
    assert norm(implicit, 2) <= norm(model.g, 2) * norm(model.b, 2) / (1 - 0.6)
    # The bound fails where the state's Lipschitz constant is taken too small.
    assert norm(torch.linalg.inv(torch.eye(5, dtype=x.dtype) - at_state), 2) > 1 / (1 - 0.01)


@pytest.mark.parametrize(("cls", "seed"), [(HamVQ, 0), (HamCD, 0)])
def test_propositions_2_and_3_hold_for_a_ham_where_its_steps_contract(
    cls: type[HamVQ] | type[HamCD], seed: int
) -> None:
    """At a fixed point of the bases with spectral radius below 1; the paper assumes a contraction everywhere."""
    torch.manual_seed(seed)
    many = cls(5, rank=2, steps=400, temperature=0.2, gradient="bptt").double()
    one = cls(5, rank=2, steps=1, temperature=0.2, gradient="bptt").double()
    x = low_rank_map((1, 5, 3, 3), seed)[1].flatten(2)
    start = many.initial_bases(x, 1)
    with torch.no_grad():
        fixed = many.decompose(x, start)[1]
    torch.testing.assert_close(one.decompose(x, fixed)[1], fixed, rtol=0, atol=1e-12)
    at_state = jacobian.jacobian(lambda bases: one.decompose(x, bases)[1], fixed)
    assert torch.linalg.eigvals(at_state).abs().max() < 0.99
    at_input = jacobian.jacobian(lambda x: one.decompose(x, fixed)[1], x)
    implicit = torch.linalg.solve(torch.eye(len(at_state), dtype=x.dtype) - at_state, at_input)
    torch.testing.assert_close(jacobian.jacobian(lambda x: many.decompose(x, start)[1], x), implicit, rtol=0, atol=1e-8)
    assert jacobian.jacobian(lambda bases: many.decompose(x, bases)[0], start).abs().max() < 1e-8
