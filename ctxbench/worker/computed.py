"""Signs that timed passes were not computed: the time of one on an unseen input, and what each must write."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ctxbench import devices
from ctxbench.base.mode import Mode
from ctxbench.base.notes import Note
from ctxbench.devices.clock import Clock, Step
from ctxbench.meta.outputs import tensors_of

# A pass on an unseen input that takes so many times one on a seen input does work that the other does not: the caches
# of a processor and its clock change a pass by less where both follow a copy of the input.
MULTIPLE = 3.0
# An interruption makes one pass long; so many inputs in a row are not interrupted by chance.
INPUTS = 3


def kept_by_content(step: Step, x: Tensor, clock: Clock, mode: Mode, seed: int) -> Iterator[Note]:
    """Tell in a note if passes on inputs that were not seen all take a multiple of passes on these inputs again.

    `x` `[B, C, H, W]` is changed in its place, and is afterwards as it was.
    """
    generator = torch.Generator(x.device).manual_seed(seed)
    before = x.detach().clone()
    unseen: list[float] = []
    again: list[float] = []
    for _ in range(INPUTS):
        other = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        step()  # what the pass reads besides its input is in the caches for both
        for seconds in (unseen, again):
            x.data.copy_(other)
            seconds.append(clock.time_block(step, 1))
        x.data.copy_(before)
    if min(unseen) > MULTIPLE * max(again):
        yield Note("kept_by_content", {"mode": mode, "multiple": MULTIPLE}, f"latency_{mode}")


def impossible(y: Any, x: Tensor, model: nn.Module, device: devices.Device, mode: Mode, ms: float) -> Iterator[Note]:
    """Tell in a note if a pass takes less than a card, known by its data sheet, needs to write the output.

    What the L2 cache holds need not reach the memory. An output that is the input, a weight or a view of one is not
    written.
    """
    sheet = devices.sheet_of(device)
    if sheet is None:
        return
    own = {each.untyped_storage().data_ptr() for each in (x, *model.parameters(), *model.buffers())}
    outputs = [each for each in tensors_of(y) if each.layout == torch.strided]
    storages = {each.untyped_storage().data_ptr(): each for each in outputs}
    written = sum(
        min(each.nbytes, each.untyped_storage().nbytes()) for where, each in storages.items() if where not in own
    )
    least_ms = (written - sheet.l2_mib * 2**20) / sheet.bandwidth * 1e3
    if ms < least_ms:
        values = {"mode": mode, "card": sheet.title, "least_ms": least_ms, "mib": written / 2**20}
        yield Note("impossible_time", values, f"latency_{mode}")
