"""The profile: lifetimes, groups, sentences with computed numbers, remedies, the drawing."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from wrapped import Wrapped

from ctxbench import registry
from ctxbench.base.call_sites import WRAPPER, CallSite
from ctxbench.base.mode import Mode
from ctxbench.meta.outputs import trained_input
from ctxbench.plugins.memory.convention import CONVENTION
from ctxbench.plugins.memory.explain import explain
from ctxbench.plugins.memory.metric import convention
from ctxbench.plugins.memory.plot import plot
from ctxbench.plugins.memory.predict import predict_peak
from ctxbench.plugins.memory.profile import Allocation, MemoryProfile, MemoryStep
from ctxbench.plugins.memory.remedy import fused_attention, remedies, saved_lines
from ctxbench.plugins.memory.tracker import Tracker
from ctxbench.registry.layout import TOKENS, OfMap

MIB = 2**20


def test_what_gives_a_block_its_layout_is_told_apart() -> None:
    block = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    x, tokens = torch.empty(1, 64, 32, 32, device="meta"), torch.empty(1, 1024, 64, device="meta")
    alone = predict_peak(block, tokens, mode="train").peak_bytes
    found = predict_peak(OfMap(block, TOKENS), x, mode="train")
    copies = [(each.bytes, each.shape) for each in found.groups() if each.where == WRAPPER]
    assert copies == [(1024 * 64 * 4, (1, 1024, 64))]
    assert found.peak_bytes == alone + 1024 * 64 * 4
    last = predict_peak(OfMap(block, TOKENS), x.contiguous(memory_format=torch.channels_last), mode="train")
    assert last.peak_bytes == alone
    assert not [each for each in remedies(OfMap(block, TOKENS), x, mode="train") if WRAPPER in each.change]


def block(size: int, born: int, died: int | None, reads: list[int], category: str = "temporary") -> Allocation:
    return Allocation(
        size * MIB, (size,), "float32", "aten.mm", category, CallSite(node=f"net.py:{born}"), born, died, reads  # type: ignore[arg-type]  # a plain str
    )  # fmt: skip


@pytest.fixture
def profile() -> MemoryProfile:
    """Three steps forward, two backward; the peak, 29 MiB with 6 inside the kernel, is at the fourth."""
    weights = block(1, 0, None, [0, 4], "weights")
    idle = block(8, 0, 5, [1])
    saved = block(4, 1, 5, [2, 4], "saved for backward")
    saved.saved_by = "MulBackward0"
    gradient = block(10, 3, None, [4], "gradient")
    live = [9, 13, 13, 29, 23]
    timeline = [
        MemoryStep(f"aten.op{i}", "forward" if i < 3 else "backward", size * MIB) for i, size in enumerate(live)
    ]
    timeline[3].inner = (6 * MIB,)
    return MemoryProfile("Net", "train", "cuda", MIB, timeline, [weights, idle, saved, gradient], {}, {})


def test_the_peak_and_what_is_alive(profile: MemoryProfile) -> None:
    assert (profile.peak_step, profile.peak_bytes, profile.at_op, profile.phase) == (
        3,
        29 * MIB,
        "aten.op3",
        "backward",
    )
    assert [b.bytes // MIB for b in profile.alive] == [10, 8, 6, 4, 1]
    assert profile.by_category() == {
        "temporary": 14 * MIB,
        "gradient": 10 * MIB,
        "saved for backward": 4 * MIB,
        "weights": MIB,
    }


def test_lifetimes_that_are_cut_lower_the_peak(profile: MemoryProfile) -> None:
    idle = profile.allocations[1]
    assert profile.peak_without({idle: (2, 5)}) == 21 * MIB
    assert profile.peak_without({idle: (4, 5)}) == 29 * MIB
    assert profile.peak_without({}) == profile.peak_bytes


def test_a_prediction_keeps_nothing_of_the_pass() -> None:
    def trackers() -> int:
        gc.collect()
        return sum(isinstance(each, Tracker) for each in gc.get_objects())

    before = trackers()
    profile = predict_peak(nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()), torch.randn(1, 2, 3, 3), mode="train")
    assert profile.peak_bytes > 0
    assert trackers() == before


def test_the_sentences_carry_the_numbers(profile: MemoryProfile) -> None:
    text = "\n".join(explain(profile))
    assert "The peak, 29.0 MiB, is in the backward pass at aten.op3, step 4 of 5." in text
    assert "temporary 14.0 MiB (48%)" in text
    assert "8.0 MiB made by aten.mm at net.py:0 stay in memory although nothing reads them again" in text
    assert "and the peak is 21.0 MiB." in text
    assert "4.0 MiB (14%) made at net.py:1 are saved for MulBackward0" in text
    assert [least for _, _, least in saved_lines(profile)] == [25 * 2**20]
    assert "aten.op3 allocates 6.0 MiB inside its kernel" in text


def test_marks_and_workspaces_are_told(profile: MemoryProfile) -> None:
    profile.marks["aten.foo"] = "not in the table"
    profile.workspaces["cuBLAS"] = "8 MiB"
    text = "\n".join(explain(profile))
    assert "the peak may be higher: aten.foo (not in the table)" in text
    assert "the workspace of cuBLAS (8 MiB)" in text


def test_a_map_kept_by_its_name_is_found_and_its_price_is_right() -> None:
    def kept(x: Tensor) -> Tensor:
        raw = x @ x.transpose(1, 2)
        affinity = raw.softmax(dim=2)
        return affinity @ affinity @ x

    def freed(x: Tensor) -> Tensor:
        affinity = (x @ x.transpose(1, 2)).softmax(dim=2)
        return affinity @ affinity @ x

    x = torch.empty(1, 512, 8, device="meta")
    keeps, frees = (predict_peak(Wrapped(function), x, mode="infer") for function in (kept, freed))
    output = 4 * 512 * 8
    assert keeps.peak_bytes == 3 * MIB + output
    assert frees.peak_bytes == 2 * MIB + output
    sentence = next(s for s in explain(keeps) if "nothing reads them again" in s)
    assert "1.0 MiB made by aten.bmm.default at test_memory_profile.py" in sentence
    assert "the peak is 2.0 MiB" in sentence
    assert not any("nothing reads" in s for s in explain(frees))


def attention(function: Callable[..., Tensor]) -> nn.Module:
    """A function of queries, keys and values from one projection."""
    project = nn.Linear(32, 96, bias=False)
    return Wrapped(lambda x, project: function(*project(x).chunk(3, dim=2)), project)


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_fused_attention_is_a_remedy_close_to_the_fused_modules_own_peak(scale: float, mode: Mode) -> None:
    def written(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        affinity = query @ key.transpose(1, 2)
        scaled = affinity * scale if scale != 1 else affinity
        return scaled.softmax(dim=2) @ value

    one_head = attention(
        lambda q, k, v: scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], scale=scale)[:, 0]
    )
    x = torch.empty(1, 1024, 32, device="meta")
    remedy = remedies(attention(written), x, mode=mode)[0]
    assert "fused attention at test_memory_profile.py" in remedy.change
    assert "no map of 1024 x 1024" in remedy.change
    fused, peak = (predict_peak(each, x, mode=mode).peak_bytes for each in (one_head, attention(written)))
    assert remedy.peak_bytes <= fused < 0.4 * peak  # 4 MiB an affinity, 128 KiB a map of 32 channels
    assert fused - remedy.peak_bytes <= 5 * 4 * 1024 * 32  # the workspace of the fused kernel's backward pass


def test_a_softmax_that_no_fused_kernel_can_take_is_no_attention() -> None:
    """Weights are multiplied with another map of their size, as the first codes of a factorisation are."""

    def updated(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        affinity = query @ key.transpose(1, 2)
        return affinity.softmax(dim=2) * affinity @ value

    convolved = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Softmax(dim=1), nn.Conv2d(8, 8, 1))
    for module, shape in ((convolved, (1, 8, 64, 64)), (attention(updated), (1, 256, 32))):
        found = remedies(module, torch.empty(shape, device="meta"), mode="train")
        assert not any("attention" in remedy.change for remedy in found)


# Values summed by a softmax of products over what is summed. All others with a softmax of a product do something else:
# `ema` averages positions by weights over bases, `external` and `hypergraph` normalise over positions, `ham_nmf` and
# `rala` multiply.
FUSIBLE = {"acf", "agent", "apnb", "cga", "da", "isa", "mdta", "neighborhood", "non_local", "sa", "shsa", "xca"}


@pytest.mark.slow
def test_of_all_blocks_fused_attention_is_advised_for_those_that_are_attention() -> None:
    advised = set()
    for entry in registry.entries():
        with torch.device("meta"):
            module = entry.build(64)
        image = trained_input(module, torch.empty(1, 64, 16, 16, device="meta"))
        if any(True for _ in fused_attention(predict_peak(module, image, mode="train"))):
            advised.add(entry.key)
    assert advised == FUSIBLE


def test_an_attention_without_a_fused_kernel_says_why_and_its_own_variables_are_no_advice() -> None:
    rows = Wrapped(lambda x: scaled_dot_product_attention(x, x, x))
    sentences = explain(predict_peak(rows, torch.empty(2, 2, 2, 128, 16, device="meta"), mode="infer"))
    assert any("has no fused kernel here: its maps have 5 dimensions" in sentence for sentence in sentences)
    assert not any("nothing reads" in sentence for sentence in sentences)
    strided = torch.empty(2, 2, 16, 128, device="meta").transpose(2, 3)
    assert "stride 1" in " ".join(predict_peak(rows, strided, mode="infer").unfused.values())
    odd = torch.empty(2, 2, 128, 6, device="meta")
    assert "heads have 6 channels, no multiple of 4" in " ".join(predict_peak(rows, odd, mode="infer").unfused.values())
    assert predict_peak(rows, torch.empty(2, 2, 128, 16, device="meta"), mode="infer").unfused == {}


def test_hints_of_the_same_kind_are_one() -> None:
    def keeps(x: Tensor) -> Tensor:
        first = x * 2
        second = first * 2
        third = second * 2
        return third * 2

    profile = predict_peak(Wrapped(keeps), torch.empty(2**18, device="meta"), mode="infer")
    hints = [sentence for sentence in explain(profile) if "del" in sentence]
    assert len(hints) == 1
    assert hints[0].count("1.0 MiB made by aten.mul.Tensor") == 2
    assert hints[0].endswith("and the peak is 2.0 MiB.")


def test_a_linear_layer_by_hand() -> None:
    x = torch.empty(4, 256, device="meta")
    profile = predict_peak(nn.Linear(256, 128, bias=False), x, mode="train")
    weight, output, scalar = 4 * 256 * 128, 4 * 4 * 128, 512
    # at the product that gives the weight's gradient: weight, output, sum, ones, the dense copy of the gradient, result
    assert profile.peak_bytes == 2 * weight + 2 * output + 2 * scalar
    assert profile.weights_bytes == weight
    assert profile.at_op == "aten.mm.default"


def test_remedies_are_predicted_and_ordered() -> None:
    module = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.SiLU())), nn.Linear(64, 64))
    found = remedies(module, torch.empty(512, 64, device="meta"), mode="train")
    peak = predict_peak(module, torch.empty(512, 64, device="meta"), mode="train").peak_bytes
    assert {remedy.change.split(" ")[0] for remedy in found} >= {"bfloat16", "half"}
    assert [remedy.peak_bytes for remedy in found] == sorted(remedy.peak_bytes for remedy in found)
    assert all(remedy.peak_bytes < peak for remedy in found)


def test_an_in_place_activation_is_a_remedy_where_it_helps() -> None:
    module, image = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU()), torch.empty(1, 8, 64, 64, device="meta")
    found = {remedy.change: remedy.peak_bytes for remedy in remedies(module, image, mode="infer")}
    weights = 1024  # two blocks of 512 bytes
    assert found["in-place activations (inplace=True)"] == 4 * image.numel() + weights
    assert predict_peak(module, image, mode="infer").peak_bytes == 8 * image.numel() + weights


@pytest.mark.slow
def test_checkpointing_blocks_is_a_remedy_where_it_helps() -> None:
    block = [nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.SiLU()) for _ in range(4))) for _ in range(4)]
    found = {
        r.change: r.peak_bytes
        for r in remedies(nn.Sequential(*block), torch.empty(1024, 32, device="meta"), mode="train")
    }
    peak = predict_peak(nn.Sequential(*block), torch.empty(1024, 32, device="meta"), mode="train").peak_bytes
    # without: 32 kept maps (two a layer); with: four blocks' inputs, and eight maps of the block that is recomputed
    assert found["checkpointing each block (torch.utils.checkpoint)"] < 0.5 * peak


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_drawing_is_written(profile: MemoryProfile, tmp_path: Path, suffix: str) -> None:
    plot(profile, tmp_path / f"memory.{suffix}")
    assert (tmp_path / f"memory.{suffix}").stat().st_size > 1000


def test_the_memory_convention_is_that_of_the_predictor() -> None:
    assert CONVENTION in convention(lambda column: [])
