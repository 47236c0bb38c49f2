"""The three hams against a second statement of their equations, their closed forms, and their refusals."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import reference_hams as reference
import torch
from torch import Tensor

from ctxbench.meta.differences import positions_first
from ctxbench.modules._ham import Hamburger
from ctxbench.modules.ham_cd import HamCD
from ctxbench.modules.ham_nmf import HamNMF
from ctxbench.modules.ham_vq import HamVQ

pytestmark = pytest.mark.slow  # many small cases, which take seconds together

HAMS: dict[str, type[Hamburger]] = {"nmf": HamNMF, "cd": HamCD, "vq": HamVQ}
FULL_SIZE = (1, 512, 128, 128)
CHANNELS, INNER, RANK, STEPS = 6, 8, 3, 3
SHAPE = (2, CHANNELS, 5, 7)

every_ham = pytest.mark.parametrize("ham", HAMS)
every_init = pytest.mark.parametrize("init", ["random", "fixed", "learned", "online"])


def build(ham: str, **hparams: Any) -> Hamburger:
    """A small ham in float64, with T = 0.5 so that every step shows in the result."""
    torch.manual_seed(0)
    if hparams.get("init") == "learned":
        hparams["gradient"] = "bptt"
    module = HAMS[ham](CHANNELS, **{"d": INNER, "rank": RANK, "steps": STEPS, "temperature": 0.5} | hparams)
    for name in ("norm.weight", "norm.bias", "lower.bias"):
        if name in dict(module.named_parameters()):
            torch.nn.init.normal_(module.get_parameter(name), mean=0.5)
    return module.double()


def make_input(*, scale: float = 1.0, images: int = SHAPE[0]) -> Tensor:
    shape = (images, *SHAPE[1:])
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def run_seeded(module: Hamburger, x: Tensor, seed: int = 2) -> Tensor:
    torch.manual_seed(seed)
    output = module(x)
    assert isinstance(output, Tensor)
    return output


def options_of(ham: str, module: Hamburger, **changes: Any) -> reference.Options:
    options = reference.Options(
        ham,
        steps=module.steps,
        temperature=1 / module.sharpness,
        heads=module.heads,
        layout=module.layout,
        one_step=module.gradient == "one_step",
    )
    return replace(options, **changes)


def start_of(ham: str, module: Hamburger, weights: dict[str, Tensor], batch: int, seed: int = 2) -> Tensor:
    """The dictionaries that `run_seeded` starts from, `[B*heads, D, rank]`."""
    if module.init == "random":
        torch.manual_seed(seed)
        height = INNER // module.heads if module.layout == "spatial" else SHAPE[2] * SHAPE[3]
        return reference.draw(ham, batch * module.heads, height, RANK)
    bases = weights["bases"] if module.init == "learned" else module.bases.clone()
    if module.init == "learned":
        bases = bases.abs() if ham == "nmf" else bases
        bases = bases / bases.square().sum(1, keepdim=True).sqrt()
    return torch.cat([bases] * batch)


def run_reference(ham: str, module: Hamburger, x: Tensor, **changes: Any) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Output, the leaves whose gradients are to be compared, and the final dictionaries."""
    weights = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
    start = start_of(ham, module, weights, len(x))
    output, final = reference.burger(x, weights, start, options_of(ham, module, **changes))
    return output, weights, final


def assert_agrees(ham: str, module: Hamburger, images: int = SHAPE[0]) -> None:
    """Output and the gradients of input and parameters equal the reference's, in training mode."""
    x, x_reference = (make_input(images=images).requires_grad_() for _ in range(2))
    expected, weights, _ = run_reference(ham, module, x_reference)
    probe = positions_first(
        torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    )
    expected.backward(probe)
    output = run_seeded(module, x)
    output.backward(probe)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(x.grad, x_reference.grad, rtol=1e-8, atol=1e-9)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=1e-8, atol=1e-9, msg=name)


@every_ham
@pytest.mark.parametrize("gradient", ["one_step", "bptt"])
@pytest.mark.parametrize("layout", ["spatial", "channel"])
@pytest.mark.parametrize(("heads", "images"), [(1, 1), (1, 2), (2, 2)])
def test_output_and_gradients_equal_the_reference(
    ham: str, gradient: str, layout: str, heads: int, images: int
) -> None:
    assert_agrees(ham, build(ham, gradient=gradient, layout=layout, heads=heads), images)


@every_ham
@every_init
@pytest.mark.parametrize("heads", [1, 2])
def test_each_initialisation_equals_the_reference(ham: str, init: str, heads: int) -> None:
    assert_agrees(ham, build(ham, init=init, heads=heads))


@every_ham
def test_learned_bases_equal_the_reference_after_a_training_step_moved_them(ham: str) -> None:
    module = build(ham, init="learned")
    with torch.no_grad():
        module.bases.copy_(torch.randn_like(module.bases))
    assert_agrees(ham, module)
    assert module.bases.grad is not None
    assert module.bases.grad.abs().max() > 1e-6


@every_ham
def test_published_defaults_in_float32_equal_the_reference(ham: str) -> None:
    torch.manual_seed(0)
    module = HAMS[ham](512)
    x, start = torch.rand(1, 512, 108), reference.draw(ham, 1, 512, 64, torch.float32)
    output, _ = module.decompose(x, start)
    assert (module.head_width, module.rank, module.steps) == (512, 64, 6)
    options = reference.Options(ham, steps=6, temperature=1.0 if ham == "nmf" else 0.01)
    dictionary, codes, _ = reference.solve(x[0].double(), start[0].double(), options)
    torch.testing.assert_close(output[0].double(), dictionary @ codes, rtol=0, atol=5e-5)


@every_ham
def test_inputs_below_the_epsilons_equal_the_reference(ham: str) -> None:
    x, start = matrix_and_start(ham)
    x = 1e-7 * x
    output, _ = build(ham).decompose(x[None], start[None])
    dictionary, codes, _ = reference.solve(x, start, reference.Options(ham, STEPS, temperature=0.5))
    torch.testing.assert_close(output[0], dictionary @ codes, rtol=1e-9, atol=0)


@every_ham
def test_wrong_steps_or_temperature_is_caught(ham: str) -> None:
    module, x = build(ham), make_input()
    output = run_seeded(module, x)
    for change in ({"steps": STEPS + 1}, {"steps": STEPS - 1}, {"temperature": 1.0}):
        wrong, _, _ = run_reference(ham, module, x, **change)
        assert (output - wrong).abs().max() > 1e-4, change


def test_wrong_beta_is_caught() -> None:
    x = make_input()
    for beta in (0.1, 0.2):
        module = build("cd", beta=beta)
        right, _, _ = run_reference("cd", module, x, beta=beta)
        wrong, _, _ = run_reference("cd", module, x, beta=2 * beta)
        output = run_seeded(module, x)
        assert (output - right).abs().max() < 1e-9
        assert (output - wrong).abs().max() > 1e-3


def decompose_with_gradient(ham: str, x: Tensor, start: Tensor, **hparams: Any) -> tuple[Tensor, Tensor]:
    """M Z^T for a batch of one, and the gradient at X of its sum weighted by `probe_like(x)`."""
    x = x.clone().requires_grad_()
    output, _ = build(ham, **hparams).decompose(x[None], start[None])
    torch.autograd.backward((output[0] * probe_like(x)).sum())
    assert x.grad is not None
    return output[0].detach(), x.grad


def probe_like(x: Tensor) -> Tensor:
    return torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(4))


def matrix_and_start(ham: str, height: int = 5, columns: int = 11, rank: int = RANK) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    x = torch.rand(height, columns, dtype=torch.float64)
    return x, reference.draw(ham, 1, height, rank)[0]


@every_ham
@pytest.mark.parametrize("temperature", [0.01, 1.0])
def test_one_step_gradient_in_closed_form(ham: str, temperature: float) -> None:
    x, start = matrix_and_start(ham)
    _, gradient = decompose_with_gradient(ham, x, start, temperature=temperature)
    bases, last_codes, codes = reference.solve(x, start, reference.Options(ham, STEPS, temperature))
    upstream = probe_like(x)
    if ham == "cd":
        ridge = bases.T @ bases + 0.1 * torch.eye(RANK, dtype=x.dtype)
        expected = bases @ torch.linalg.inv(ridge) @ bases.T @ upstream
    elif ham == "nmf":
        expected = bases @ (bases.T @ upstream * codes / (bases.T @ bases @ codes + 1e-6))
    else:
        at_codes = bases.T @ upstream
        at_cosine = last_codes * (at_codes - (at_codes * last_codes).sum(0)) / temperature
        expected = bases / bases.norm(dim=0) @ at_cosine / (x.norm(dim=0) + 1e-6)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-11)


@every_ham
def test_bptt_gives_the_exact_gradient(ham: str) -> None:
    x, start = matrix_and_start(ham, height=3, columns=4, rank=2)
    module = build(ham, gradient="bptt", steps=2, rank=2)
    x, start = x[None].requires_grad_(), start[None].requires_grad_()
    assert torch.autograd.gradcheck(lambda x, start: module.decompose(x, start)[0], (x, start))


@every_ham
def test_gradient_modes_share_the_output_and_the_gradients_behind_the_ham(ham: str) -> None:
    outputs, gradients = [], []
    for gradient in ("one_step", "bptt"):
        module, x = build(ham, gradient=gradient), make_input().requires_grad_()
        outputs.append(run_seeded(module, x))
        torch.autograd.backward(outputs[-1].square().sum())
        gradients.append({name: p.grad for name, p in module.named_parameters()} | {"x": x.grad})
    assert torch.equal(outputs[0], outputs[1])
    one_step, bptt = gradients
    for name in ("upper.weight", "norm.weight", "norm.bias"):
        torch.testing.assert_close(one_step[name], bptt[name], rtol=0, atol=0)
    for name in ("lower.weight", "x"):
        assert (one_step[name] - bptt[name]).abs().max() > 1e-4, name


@pytest.mark.parametrize(("ham", "rank"), [("cd", 3), ("nmf", 1)])
def test_gradient_modes_agree_where_the_steps_carry_no_gradient(ham: str, rank: int) -> None:
    """In one dimension CD's unit bases are signs, and NMF of rank one reproduces X from any start."""
    x, start = matrix_and_start(ham, height=1, rank=rank)
    _, one_step = decompose_with_gradient(ham, x, start, gradient="one_step")
    _, bptt = decompose_with_gradient(ham, x, start, gradient="bptt")
    assert one_step.abs().max() > 0.1
    torch.testing.assert_close(one_step, bptt, rtol=0, atol=1e-5)


def test_one_base_of_vq_is_the_mean_which_only_bptt_differentiates() -> None:
    x, start = matrix_and_start("vq", rank=1)
    count = x.shape[1] / (x.shape[1] + 1e-6)
    for gradient, expected in (("one_step", torch.zeros_like(x)), ("bptt", probe_like(x).mean(1, True).expand_as(x))):
        output, at_input = decompose_with_gradient("vq", x, start, gradient=gradient, rank=1)
        torch.testing.assert_close(output, count * x.mean(1, True).expand_as(x), rtol=0, atol=1e-13)
        torch.testing.assert_close(at_input, count * expected, rtol=0, atol=1e-13)


def test_error_of_nmf_falls_with_every_step() -> None:
    x, start = matrix_and_start("nmf", height=16, columns=40, rank=4)
    errors = []
    for steps in range(1, 9):
        output, _ = build("nmf", steps=steps).decompose(x[None], start[None])
        errors.append(((x - output[0]).norm() / x.norm()).item())
    assert errors == sorted(errors, reverse=True)
    assert errors[0] - errors[-1] > 0.01


@every_ham
def test_zero_matrix_gives_zero_and_a_finite_gradient(ham: str) -> None:
    _, start = matrix_and_start(ham)
    for dtype in (torch.float64, torch.float32, torch.float16):
        zero = torch.zeros(1, 5, 11, dtype=dtype, requires_grad=True)
        output, bases = build(ham).to(dtype).decompose(zero, start[None].to(dtype))
        torch.autograd.backward(output.sum())
        assert torch.equal(output, torch.zeros_like(output))
        assert bases.isfinite().all()
        assert zero.grad is not None
        assert zero.grad.isfinite().all()


@every_ham
def test_zero_input_leaves_the_norms_bias(ham: str) -> None:
    module = build(ham).eval()
    assert module.lower.bias is not None
    torch.nn.init.zeros_(module.lower.bias)
    output = module(torch.zeros(SHAPE, dtype=torch.float64))
    assert torch.equal(output, module.norm.bias.clamp(min=0)[:, None, None].expand(SHAPE))


@every_ham
@every_init
def test_a_seed_repeats_a_forward(ham: str, init: str) -> None:
    module, x = build(ham, init=init).eval(), make_input()
    outputs = [run_seeded(module, x, seed) for seed in (7, 7, 8)]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2]) == (init != "random")


@every_ham
def test_each_image_draws_its_own_bases(ham: str) -> None:
    module = build(ham).eval()
    first, second = run_seeded(module, make_input()[:1].repeat(2, 1, 1, 1))
    assert (first - second).abs().max() > 1e-3


@every_ham
@every_init
def test_eval_changes_no_state(ham: str, init: str) -> None:
    module = build(ham, init=init).eval()
    before = copy.deepcopy(module.state_dict())
    module(make_input())
    assert ("bases" in before) == (init != "random")
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


@every_ham
def test_training_moves_online_bases_towards_the_batch_mean(ham: str) -> None:
    module = build(ham, init="online", heads=2, eta=0.25)
    before, x = module.bases.clone(), make_input()
    _, _, final = run_reference(ham, module, x)
    module(x)
    mean = torch.stack([(final[head] + final[head + 2]) / 2 for head in range(2)])
    expected = 0.75 * before + 0.25 * mean
    torch.testing.assert_close(module.bases, expected / expected.norm(dim=1, keepdim=True), rtol=0, atol=1e-12)
    assert (module.bases - before).abs().max() > 1e-3


@every_ham
@pytest.mark.parametrize("init", ["random", "fixed", "learned"])
def test_training_moves_no_other_bases(ham: str, init: str) -> None:
    module = build(ham, init=init)
    before = {name: value.clone() for name, value in module.state_dict().items() if name == "bases"}
    module(make_input())
    after = {name: value for name, value in module.state_dict().items() if name == "bases"}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@every_ham
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite(ham: str, dtype: torch.dtype) -> None:
    module, x = HAMS[ham](32, rank=8).to(dtype), torch.randn(2, 32, 9, 6).to(dtype)
    output = run_seeded(module, x.requires_grad_())
    torch.autograd.backward(output.sum())
    assert output.dtype == dtype
    assert output.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@every_ham
def test_channels_last_input_gives_the_same_output(ham: str) -> None:
    module, x = build(ham), make_input()
    expected = run_seeded(module, x)
    output = run_seeded(module, x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-11)


@every_ham
def test_burger_is_initialised_as_published(ham: str) -> None:
    torch.manual_seed(0)
    module = HAMS[ham](400, d=100, rank=8)
    assert module.lower.weight.std().item() == pytest.approx((2 / 100) ** 0.5, rel=0.02)
    assert module.upper.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert module.upper.bias is None
    assert module.norm.momentum == 3e-4


@every_ham
@pytest.mark.parametrize("without", ["ham", "lower", "upper", "breads"])
def test_a_part_that_is_left_out_is_the_identity(ham: str, without: str) -> None:
    whole, module = build(ham, d=CHANNELS, init="fixed"), build(ham, d=CHANNELS, init="fixed", without=without)
    module.load_state_dict(whole.state_dict(), strict=False)
    x, before = make_input(), make_input()
    y = x if without in ("lower", "breads") else whole.lower(x)
    if without != "ham":
        matrix = y.flatten(2).clamp(min=0) if ham == "nmf" else y.flatten(2)
        torch.testing.assert_close(module.matrix(x), matrix, rtol=0, atol=0)
        y = whole.decompose(matrix, whole.initial_bases(matrix, SHAPE[0]))[0].reshape(x.shape)
    y = y if without in ("upper", "breads") else whole.upper(y)
    torch.testing.assert_close(module(x), (x + whole.norm(y)).clamp(min=0), rtol=0, atol=1e-12)
    assert torch.equal(x, before)
