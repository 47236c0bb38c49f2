"""Any constructor that runs on the CPU: counted on meta with the numbers of its function."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import ctxbench
from ctxbench.base.errors import UsageError
from ctxbench.meta.built import converted, without_data
from ctxbench.meta.on_meta import on_meta
from ctxbench.metrics.params import count_params
from ctxbench.model.case import Case, one_case
from ctxbench.plugins.macs.counter import MacCount, count_macs
from ctxbench.plugins.macs.training import count_training_macs
from ctxbench.plugins.memory.predict import predict_peak

FILE = Path(__file__).parent / "fixtures" / "public_blocks.py"
# PyTorch warns of what people do.
pytestmark = [pytest.mark.filterwarnings("ignore:.*torch.jit"), pytest.mark.filterwarnings("ignore:.*a no-op")]
N, C = 64, 64
LAYER, MIX = C * C + C, N * C * C  # a 1x1 convolution with its bias


def case(name: str, shape: tuple[int, ...] = (1, C, 8, 8), **hparams: Any) -> Case:
    return one_case(f"{FILE}:{name}", {"shape": shape}, hparams)


def counts(found: Case) -> MacCount:
    return count_macs(*found.on_meta())


def skip_traced(how: str) -> None:
    """Skip a test of a traced part where PyTorch itself runs none without data, as 2.11."""
    if how == "trace":
        traced: Any = torch.jit.trace(nn.Conv2d(2, 2, 1), torch.zeros(1, 2, 1, 1))
        try:
            traced.to("meta")(torch.zeros(1, 2, 1, 1, device="meta"))
        except RuntimeError:
            pytest.skip("this PyTorch runs no traced convolution on meta")


# By hand: the parameters, and the MACs with one for each multiplied element and mean.
RIGHT = [
    ("Rates", {}, LAYER, MIX + N * C + C),
    ("Table", {}, LAYER, MIX + N * C),
    ("Loaded", {}, 2 * LAYER, 2 * MIX),
    ("Parent", {"how": "plain"}, 2 * LAYER, 2 * MIX + C),
    ("Parent", {"how": "script"}, 2 * LAYER, 2 * MIX + C),
    ("Parent", {"how": "trace"}, 2 * LAYER, 2 * MIX + C),
    ("Lazy", {"lazy": False}, 2 * LAYER, MIX + C + C * C + N * C),
    ("Lazy", {"lazy": True}, 2 * LAYER, MIX + C + C * C + N * C),
    ("LazyNorm", {}, 9 * C * C + C + 2 * C, 9 * MIX + N * C),
    ("Spectral", {}, C * 8 * 5, C * 8 * 5),
    ("Sampled", {}, 2 * LAYER, 2 * MIX + N * C),
    ("MadeInPass", {}, LAYER + N * C, MIX),
]


@pytest.fixture(autouse=True)
def _weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Conv2d(C, C, 1)
    torch.save({"depth": torch.tensor(2), **layer.state_dict()}, tmp_path / "weights.pt")
    monkeypatch.setenv("WEIGHTS", str(tmp_path / "weights.pt"))


@pytest.mark.parametrize(("name", "hparams", "params", "macs"), RIGHT)
def test_a_block_is_counted_whatever_its_constructor_does(
    name: str, hparams: dict[str, Any], params: int, macs: int
) -> None:
    skip_traced(str(hparams.get("how")))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    module, x = case(name, **hparams).on_meta()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(each.is_meta for each in (*module.parameters(), *module.buffers(), x))
    assert (count_params(module), count_macs(module, x).macs) == (params, macs)


@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_scripted_part_has_the_training_step_and_the_memory_of_a_plain_one(how: str) -> None:
    skip_traced(how)
    found, plain = (case("Parent", how=each).on_meta() for each in (how, "plain"))
    assert (
        count_training_macs(*found).macs == count_training_macs(*plain).macs == 5 * MIX + C
    )  # no gradient of the input
    peaks = [predict_peak(*each, mode="train").peak_bytes for each in (found, plain)]
    assert peaks[0] == peaks[1]


def test_what_takes_too_much_memory_to_build_is_refused_before_it_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2**28))
    with pytest.raises(UsageError, match=r"built with data on the CPU, and its weights take more than 0\.1 GiB, 50%"):
        case("Large").on_meta()


def test_an_error_of_the_constructor_is_the_one_on_the_cpu() -> None:
    def build() -> nn.Module:
        raise ValueError(str(torch.zeros(2).tolist()))

    with pytest.raises(ValueError, match=r"\[0.0, 0.0\]"):
        without_data(build)


def test_complex_weights_keep_their_imaginary_part() -> None:
    module = case("Spectral").build()
    gain = module.get_parameter("gain").detach().clone()
    for dtype, kept in ((torch.float32, torch.complex64), (torch.float64, torch.complex128)):
        found = converted(case("Spectral").build(), "cpu", dtype).get_parameter("gain")
        assert found.dtype == kept
        assert found.imag.any()
    assert torch.equal(converted(module, "cpu", torch.bfloat16).get_parameter("gain"), gain)


def test_the_memory_of_complex_weights_is_that_of_two_numbers_each() -> None:
    # By hand: the filter, the spectrum and its product of 8 bytes a number, the image of 4, two copies in the inverse.
    spectrum, image = 512 * 8 * 5 * 8, 512 * 8 * 8 * 4
    found = predict_peak(*case("Spectral", (1, 512, 8, 8)).on_meta(), mode="infer", device="cpu")
    assert found.weights_bytes == spectrum
    assert found.peak_bytes == 4 * spectrum + image == 786_432


def test_a_shared_weight_of_a_scripted_part_is_copied_without_data() -> None:
    found = on_meta(torch.jit.script(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))))
    assert {each.device.type for each in (*found.parameters(), *found.buffers())} == {"meta"}
    assert [each.requires_grad for each in found.parameters()] == [True] * 4


@pytest.mark.processes
@pytest.mark.usefixtures("shared_server")
def test_weights_that_the_first_pass_makes_are_told_and_trained(tmp_path: Path) -> None:
    measure = {"processes": 1, "sample_s": 0.01, "warmup_s": 0}
    run = ctxbench.run(
        modules=[f"{FILE}:MadeInPass"],
        shape=[(1, C, 8, 8)],
        metrics=["params", "latency"],
        measure=measure,
        out=tmp_path,
    )
    (row,) = run.folder.rows()
    assert (row["status"], row["params"]) == ("ok", LAYER + N * C)
    assert row["latency_train_ms"] > 0
    notes = {note.code: note.values for note in row["notes"]}
    assert notes["params_made"] == {"before": 0, "after": LAYER + N * C}
    assert "input_trained" not in notes
