"""The peak of a pass for a card by name: that of CUDA, and whether the card has room for it."""

from collections.abc import Callable

import pytest
from conftest import Done

from ctxbench.base.errors import UsageError
from ctxbench.plugins.memory.cards import Card
from ctxbench.plugins.memory.function import _card


@pytest.mark.parametrize(
    ("peak_mib", "sentence"),
    [
        (7372, "P4 has 8,192 MiB: it fits."),
        (7373, "P4 has 8,192 MiB: it may not fit."),
        (8192, "P4 has 8,192 MiB: it may not fit."),
        (8193, "P4 has 8,192 MiB: it does not fit."),
    ],
)
def test_a_peak_fits_up_to_nine_tenths_of_the_memory(peak_mib: int, sentence: str) -> None:
    assert Card("p4", "P4", "cuda", 8).fits(peak_mib * 2**20, peak_mib * 2**20).startswith(sentence)


def test_what_is_reserved_but_not_allocated_may_not_fit() -> None:
    said = Card("p4", "P4", "cuda", 8).fits(7000 * 2**20, 9000 * 2**20)
    assert said.startswith(
        "P4 has 8,192 MiB: it may not fit, since as much would be reserved; before it fails, PyTorch"
    )


def test_a_card_of_unknown_memory_is_told() -> None:
    said = Card("mine.toml", "Mine", "cuda", None).fits(1, 1)
    assert said == "The data sheet of Mine has no memory_gib: whether the pass fits is not known."


def test_an_unknown_name_has_the_kinds_and_the_cards_beside_it() -> None:
    with pytest.raises(UsageError, match="unknown device 'cuda-2021'; did you mean 'cuda-2020'"):
        _card("cuda-2021")


@pytest.mark.processes
@pytest.mark.plugin("predict")
def test_the_peak_for_a_card_is_that_of_cuda_where_no_library_takes_more(command: Callable[..., Done]) -> None:
    asked = ("memory", "sa", "--shape", "8,512,128,128")
    head, reserved, *rest = [line for line in command(*asked).stdout.splitlines() if "cuDNN" not in line]
    assert reserved == "- For it and its input the process reserves 50,186.00 MiB of the device."
    for card, fits in (("t4", "- Tesla T4 has 16,384 MiB: it does not fit."), ("b200", "184,320 MiB: it fits.")):
        done = command(*asked, "--for", card)
        assert done.returncode == 0, done.stderr
        first, second, room, cublas, context, state, *others = [
            line for line in done.stdout.splitlines() if "cuDNN" not in line
        ]
        assert (first, second, others) == (head, reserved, rest)
        assert "predicted peak on cuda 41,989.01 MiB" in first
        assert fits in room
        assert "up to 64 MiB of cuBLAS" in cublas
        assert "not predicted" in context
        assert "--optimizer adamw" in state
