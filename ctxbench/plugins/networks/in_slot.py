"""A network's slots: the inputs that they get, and what the module costs alone on these."""

import json
from collections import Counter
from typing import TYPE_CHECKING

from ctxbench.base.mode import MODES
from ctxbench.base.notes import Note
from ctxbench.metrics.params import count_params
from ctxbench.model.case import EMPTY
from ctxbench.model.metric import Column, Measurement, Metric, by_mode

if TYPE_CHECKING:
    from torch import Tensor, nn

# The part of a network that is the module.
SLOT = "module"


def count(measurement: Measurement) -> None:
    """Report the slots' inputs, and params, MACs and predicted memory of the module alone on them, all uses together.

    Memory is that of the use with the highest peak.
    """
    from ctxbench.plugins.memory.convention import UnpredictableError
    from ctxbench.plugins.memory.predict import predict_peak
    from ctxbench.registry.slot import uses

    if not measurement.case.network:
        return
    model, x = measurement.on_meta
    given_to = uses(model.eval(), x)
    shapes = [tuple(given.shape) for _, given in given_to]
    text = ", ".join(f"{shapes.count(shape)} x {list(shape)}" for shape in dict.fromkeys(shapes))
    parts = _parts(model, x)
    measurement.report({"slots": text, "network_parts": json.dumps(parts)})
    if measurement.case.module == EMPTY:
        return
    if not given_to:
        measurement.mark_missing(["alone_params", "alone_macs"], Note("no_slot_input"))
        return
    modules = {id(module): module for module, _ in given_to}
    values = {"alone_params": sum(map(count_params, modules.values())), "alone_macs": parts.get(SLOT, 0)}
    first = {tuple(given.shape): (module, given) for module, given in reversed(given_to)}
    target, cast = measurement.settings.memory_device, measurement.case.autocast_dtype
    try:
        for mode in MODES:
            peaks = [
                predict_peak(*each, mode=mode, device=target, autocast=cast).allocated_bytes for each in first.values()
            ]
            values[f"alone_memory_{mode}_bytes"] = max(peaks)
    except UnpredictableError as error:
        measurement.report({}, Note("no_memory", {"reason": f"of the module alone: {error}"}))
    measurement.report(values)


def _parts(model: "nn.Module", x: "Tensor") -> dict[str, int]:
    """The MACs of an inference by the network's own children, the module in its slots apart; the rest is "others"."""
    import torch

    from ctxbench.plugins.macs.counter import MacSum
    from ctxbench.plugins.macs.watch import Watch
    from ctxbench.registry.slot import Slot

    slots = [name for name, each in model.named_modules() if isinstance(each, Slot)]
    counting = MacSum()
    with torch.inference_mode(), Watch(model, counting.add):
        model(x)
    found: Counter[str] = Counter()
    for (place, _), macs in counting.count().by_place.items():
        in_slot = any(f"{place.module}.".startswith(f"{slot}.") for slot in slots)
        found[SLOT if in_slot else place.module.partition(".")[0] or "others"] += macs
    return dict(found)


METRIC = Metric(
    name="slot",
    order=36,
    about="what a module costs alone on the inputs that a network's slots get",
    columns=[
        Column("slots", str),
        Column("network_parts", str, json=dict),
        Column("alone_params", int),
        Column("alone_macs", int),
        *by_mode("alone_memory_{mode}_bytes", int),
    ],
    quantities=[],
    asked_for=False,
    default=False,
    count=count,
)
