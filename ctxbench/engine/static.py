"""What is known of a case without running it, on the meta device: params, MACs, predicted memory over a pass."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctxbench.results import MODES

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ctxbench.memory.profile import MemoryProfile
    from ctxbench.registry import Entry
    from ctxbench.suite import Case, Measure

Report = Callable[[dict[str, Any]], object]


def measure_static(
    case: "Case", entry: "Entry", settings: "Measure", metrics: Sequence[str], counter: str, emit: Report
) -> int | None:
    """Report the static ones among `metrics`. The larger peak of both modes predicted for this PyTorch, in bytes."""
    import torch

    with torch.device("meta"):
        model = entry.build(case.shape[1], case.hparams)
    x = torch.empty(case.shape, device="meta")
    if "params" in metrics:
        _params(case, entry, model, emit)
    if "macs" in metrics:
        _macs(case, entry, model, x, counter, emit)
    return _predict_memory(case, settings, model, x, emit) if "memory" in metrics else None


def parameter_dtype(case: "Case") -> "torch.dtype":
    """The dtype of weights and input; under autocast and TF32 that is float32."""
    import torch

    name = case.dtype
    dtype: torch.dtype = getattr(torch, "float32" if name == "tf32" or name.startswith("autocast") else name)
    return dtype


def _values(emit: Report, values: Mapping[str, Any], *notes: str) -> None:
    emit({"event": "values", "values": values, "warnings": list(notes)})


def _params(case: "Case", entry: "Entry", model: "nn.Module", emit: Report) -> None:
    from ctxbench.metrics.params import count_params

    params = count_params(model)
    declared = entry.closed_form("params", case.shape, case.hparams)
    differs = declared is not None and declared != params
    notes = [f"the declared closed form gives {declared} params, the module has {params}"] if differs else []
    _values(emit, {"params": params}, *notes)


def _macs(case: "Case", entry: "Entry", model: "nn.Module", x: "Tensor", counter: str, emit: Report) -> None:
    import torch

    from ctxbench.metrics.macs import UncountableError, count_macs, count_macs_torchprofile

    formula = entry.closed_form("macs", case.shape, case.hparams)
    try:
        if counter == "torchprofile":
            real = entry.build(case.shape[1], case.hparams)
            count = count_macs_torchprofile(real, torch.randn(case.shape))
        else:
            count = count_macs(model, x)
    except UncountableError as error:
        _values(emit, {"macs_formula": formula}, str(error))
        return
    values = {
        "macs": count.macs,
        "macs_matmul": count.macs_matmul,
        "macs_formula": formula,
        "macs_counter": counter,
        "macs_uncounted": json.dumps(count.uncounted),
    }
    _values(emit, values, *_disagreement(count.macs, formula, count.uncounted))


def _disagreement(macs: int, formula: int | None, uncounted: Mapping[str, int]) -> list[str]:
    """A sentence if the counters disagree by more than 1e-5."""
    if formula is None or abs(macs - formula) <= 1e-5 * max(macs, formula):
        return []
    missing = f" (not counted: {', '.join(uncounted)})" if uncounted else ""
    return [f"MAC counters disagree: counted {macs}, closed form {formula}{missing}"]


def _predict_memory(case: "Case", settings: "Measure", model: "nn.Module", x: "Tensor", emit: Report) -> int | None:
    from ctxbench.memory.convention import UnpredictableError
    from ctxbench.memory.predict import predict_peak

    if case.execution == "compile":
        _values(emit, {}, "no memory prediction: the compiler chooses the kernels")
        return None
    if case.dtype.startswith("autocast"):
        _values(emit, {}, "no memory prediction under autocast")
        return None
    dtype, target = parameter_dtype(case), settings.memory_device
    model, x = model.to(dtype), x.to(dtype)
    _values(emit, {"memory_predicted_for": target})
    peaks: list[int] = []
    marks: dict[str, None] = {}
    for mode in MODES:
        try:
            profile = predict_peak(model, x, mode=mode, device=target)
            today = profile if target == "cuda" else predict_peak(model, x, mode=mode, device="cuda")
        except UnpredictableError as error:
            _values(emit, {}, f"no memory prediction ({mode}): {error}")
            continue
        peaks.append(today.peak_bytes)
        marks |= dict.fromkeys(profile.marks)
        values = {f"memory_{mode}_predicted_bytes": profile.peak_bytes, "memory_marks": json.dumps(list(marks))}
        _values(emit, values, *_change_since(today.peak_bytes, profile.peak_bytes, mode))
        emit({"event": "timeline", "mode": mode, "held": _held(profile)})
    return max(peaks, default=None)


def _change_since(today: int, then: int, mode: str) -> list[str]:
    """A sentence if the prediction for the PyTorch of 2020 and that for the installed one are not the same MiB."""
    now, before = (f"{size / 2**20:.0f}" for size in (today, then))
    if now == before:
        return []
    return [
        f"predicted {mode} memory under the installed PyTorch: {now} MiB, under that of 2020 {before} MiB "
        "(see docs/memory.md)"
    ]


def _held(profile: "MemoryProfile") -> list[tuple[int, str, str, int]]:
    """Step, phase, operator and bytes, as in `ctxbench.results.Held`."""
    from ctxbench.memory.timeline import thinned

    steps = profile.timeline
    return [(at, steps[at].phase, steps[at].op, steps[at].live_bytes) for at in thinned(steps)]
