"""Figures of one line, and cost cards: what is said of them, and what is refused."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

import ctxbench
from ctxbench import UsageError, api
from ctxbench.plugins.audit import card_text
from ctxbench.plugins.audit.finding import Verdict
from ctxbench.results.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("shared_server")
ROOT = Path(__file__).parents[3]
Command = Callable[..., Done]
# A linear layer that is called, a matrix that thop does not see, and a head that nobody reads.
NET = """from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.hidden = nn.Linear(16, 333, bias=False)

    def forward(self, x):
        x = self.stem(x)
        return functional.linear(x.flatten(2).transpose(1, 2), self.hidden.weight)
"""

OUTER = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = Mamba(), nn.Linear(333, 10, bias=False)

    def forward(self, x):
        return self.out(self.inner(x)).transpose(1, 2).reshape(1, 10, *x.shape[2:])
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return f"{path}:Net"


def test_a_line_is_matched_with_the_counters_that_print_it(net: str) -> None:
    # thop: 3*16*9 weights of the layer that is called, each at 64 x 64 positions
    found = ctxbench.audit("0.432K,1.769M", of=net, shape=(1, 3, 64, 64))
    params, macs = found.value
    assert (params.printed, params.counted, params.verdict) == ("0.432K", "5.7600K", Verdict.CONVENTION)
    assert params.why == macs.why
    assert params.why == (
        "as thop@0.1.1 counts or as thop-at-32@0.1.1 counts or as ultralytics-thop@2.0.0 counts or by 2 other readings "
        "(23 counters, versions and states tried, 5 print both; 1 of the 30,711 pairs near these would fit one)"
    )
    assert (macs.counted, macs.verdict) == ("23.5930M", Verdict.CONVENTION)
    assert (
        "params and macs are both printed by thop@0.1.1, thop-at-32@0.1.1, ultralytics-thop@2.0.0, "
        "ultralytics-thop@2.0.22 and torchinfo@1.5.4." in found.tables[0].caption
    )


def test_an_excuse_that_many_figures_get_is_none(net: str) -> None:
    (found,) = ctxbench.audit("macs=2M", of=net, shape=(1, 3, 64, 64)).value
    assert found.verdict == Verdict.NOT_REPRODUCED
    words = "16 conventions and 46 readings of counters tried, 15 fit; 1 of the 1 figures near it would fit one"
    assert words in found.why


def test_two_figures_of_few_digits_are_evidence_together_where_one_counter_prints_both(net: str) -> None:
    params, macs = ctxbench.audit("0.43K,1.8M", of=net, shape=(1, 3, 64, 64)).value
    assert {params.verdict, macs.verdict} == {Verdict.CONVENTION}
    assert params.why == macs.why
    assert params.why.endswith(
        "(23 counters, versions and states tried, 5 print both; 1 of the 27 pairs near these would fit one)"
    )


def test_a_state_that_alone_prints_a_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(NET.replace("class Net(nn.Module)", "class Mamba(nn.Module)") + OUTER)
    params, macs = ctxbench.audit("3.330K,0.2131M", of=f"{path}:Net", shape=(1, 3, 8, 8)).value
    assert {params.verdict, macs.verdict} == {Verdict.CONVENTION}
    assert params.why.startswith("as thop@0.1.1+fused-mamba counts (")  # 3,330 weights of `out`, at 64 positions


def test_a_figure_that_is_not_reproduced_comes_with_what_was_tried(net: str) -> None:
    found = ctxbench.audit("params=3.21K", of=net, shape=(1, 3, 64, 64))
    assert found.value[0].verdict == Verdict.NOT_REPRODUCED
    assert found.value[0].why == "x0.56 of the count; none of 10 conventions and 20 readings of counters is nearer"
    assert any(
        line.startswith("Counters tried for params: thop@0.1.1 (also folded-norms, fused-mamba), ")
        for line in found.tables[0].caption
    )


def test_the_parameters_of_a_counter_that_the_source_names_are_equal(net: str) -> None:
    params, macs = ctxbench.audit("0.432K,1.769M", of=net, shape=(1, 3, 64, 64), tool="thop").value
    assert (params.verdict, params.why) == (Verdict.EQUAL, "as thop@0.1.1 counts, which the source names")
    assert (macs.verdict, macs.why) == (Verdict.EQUAL, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("0.5M", "--of", "se", "--shape", "1,16,4,4"), "'0.5M' is not PARAMS,MACS, such as 0.494M,0.326G"),
        (("macs=1G,macs=2G", "--of", "se", "--shape", "1,16,4,4"), "not every figure has a name,"),
        (("miou=78", "--of", "se", "--shape", "1,16,4,4"), "unknown quantity that is counted 'miou'"),
        (("macs=1X", "--of", "se", "--shape", "1,16,4,4"), "macs '1X': the unit 'X' is unknown"),
        (("macs=1G", "--of", "se"), "--of goes with --shape, and without --block"),
        (("macs=1G", "--of", "ses", "--shape", "1,16,4,4"), "unknown module 'ses'; did you mean 'se'?"),
        (("macs=1G", "--of", "se", "--shape", "1,16,4,4", "--tool", "thopp"), "unknown counter 'thopp'"),
        (("macs=1G", "--of", "se", "--shape", "1,16,4,4", "--set", "a=1"), "unknown hyper-parameter of 'se' 'a'"),
        (("hamburger", "--tool", "thop"), "--tool goes with --of, which names what the figures are of"),
        (("hamburger", "--set", "a=1"), "--set goes with --of, which names what the figures are of"),
    ],
)
def test_a_wrong_line_is_one_sentence(command: Command, arguments: tuple[str, ...], words: str) -> None:
    done = command("audit", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_card_is_recounted_to_the_last_digit_and_a_changed_digit_is_found(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    written = command("card", "se", "--shape", "1,16,4,4", "--as", "thop@0.1.1,deepspeed", "--out", path)
    assert written.returncode == 0, written.stderr
    text = path.read_text()
    assert 'tool = "thop@0.1.1"  # MACs\nprinted = { params = "0.000049M", macs = "0.000000032G" }' in text
    found = ctxbench.audit(str(path)).value
    assert len(found) == 9
    assert {each.verdict for each in found} == {Verdict.EQUAL}
    path.write_text(text.replace('macs = "0.000000032G"', 'macs = "0.000000031G"'))
    (wrong,) = [each for each in ctxbench.audit(str(path)).value if each.verdict != Verdict.EQUAL]
    assert (wrong.row, wrong.quantity, wrong.printed) == ("se, thop@0.1.1", "macs", "0.000000031G")


def test_a_card_has_the_times_of_a_run_with_their_intervals(tmp_path: Path) -> None:
    text = ctxbench.card(
        "ham_nmf", (1, 512, 128, 128), counted_as=["thop"], measured=ROOT / "results" / "table3-cpu",
        out=tmp_path / "card.toml",
    ).value  # fmt: skip
    assert 'printed = { latency_infer = "248.641", latency_train = "489.681" }' in text
    assert "95 % interval 237.779 to 256.167 ms, 3 processes, on cpu" in text
    assert 'device = "AMD EPYC"' in text
    assert "by `ctxbench run --suite table3 --out results/table3-cpu`." in text


def test_a_card_has_no_times_of_another_files_class_of_this_name() -> None:
    run = RunFolder.open(ROOT / "results" / "table3-cpu")
    case = api.case_of("ham_nmf", {}, shape=(1, 512, 128, 128), device="meta")
    assert len([*card_text.measured("ham_nmf", case, run)]) == 2  # a row in two parts
    other = dataclasses.replace(case, reference="mine.py:Hamburger")
    with pytest.raises(UsageError, match=r"has no measured time of mine\.py:Hamburger"):
        list(card_text.measured("mine.py:Hamburger", other, run))


def test_what_a_card_cannot_say_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "card.toml"
    for wrong, words in (
        ({"hparams": {"gc": {"reduction": 4}}}, "unknown block of this card 'gc'"),
        ({"measured": ROOT / "results" / "table3-cpu"}, "has no measured time of se at an input of"),
        ({"counted_as": ["thop@9"]}, "unknown version or state of this counter"),
        ({"shape": (1, 16, 4)}, "has 3 numbers"),
        ({"modules": []}, "names no block"),
    ):
        with pytest.raises(UsageError, match=words):
            ctxbench.card(**{"modules": "se", "shape": (1, 16, 4, 4), "out": out, **wrong})  # type: ignore[arg-type]  # wrong, too
    assert not out.exists()
