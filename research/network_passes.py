"""Published passes of timm's networks under AMP, read as the kernels that they start: see docs/plugins/predict.md.

A network's operators are seen once on the meta device, which takes a second; they are kept in a folder until the code
that sees them changes.
"""

import hashlib
import pickle
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from prediction_data import device

import ctxbench.plugins.predict
from ctxbench.base.call_sites import CallSite
from ctxbench.base.mode import MODES
from ctxbench.meta.autocast import Autocast
from ctxbench.plugins.memory import training
from ctxbench.plugins.memory.convention import UnpredictableError
from ctxbench.plugins.predict.operators import Operator, operators_of
from ctxbench.plugins.predict.sheet import DeviceSpec
from ctxbench.plugins.predict.work import Work

FILE = "timm_passes.csv"
# Networks whose name has a digest that begins with one of these: a part of them, so that the fit takes minutes. Of
# others, which no fit has, the width of the band of their training comes.
PART, BAND_PART = "012", "34"
# The source merged branches of these before it measured the RTX 5090, or may have: they have such a method.
MERGED = ("reparameterize", "switch_to_deploy", "fuse")
# It kept norms in float16 (timm's fast norm) where it used this PyTorch. No document says so, but the prediction of
# resnetv2_50x3_bit is 1.39 times the measured time with norms in float32, and 0.96 times with these.
FAST_NORM = "pt240"
# What the installed timm calls a network of the source.
RENAMED = {"regnety_040s_gn": "regnety_040_sgn"}
# From this share of the multiply-accumulates on, a network is of a family.
OF_PRODUCTS, OF_GROUPS, OF_DEPTHWISE, OF_CONVOLUTIONS = 0.85, 0.05, 0.01, 0.1
Kernels = Counter[tuple[Work, str]]


@dataclass(frozen=True)
class Pass:
    """A pass of a network on a card with its measured seconds, and the kernels that it starts, by work and dtype."""

    network: str
    batch: int
    mode: str
    layout: str
    sheet: DeviceSpec
    seconds: float
    kernels: Kernels

    @property
    def kin(self) -> str:
        """The networks that are left out together: those with the same first word."""
        return re.split(r"[_\d]", self.network)[0]

    @property
    def family(self) -> str:
        """Main kind of layer: transformer, hybrid, or a convnet, whose convolutions may be grouped or depthwise."""
        macs: Counter[str] = Counter()
        for (work, _), count in self.kernels.items():
            amount = work.product.macs if work.product else work.flops / 2 if work.is_product else 0
            macs["product" if "convolution" not in work.kind else work.kind] += round(amount * count)
        total = sum(macs.values())
        has_attention = any(work.kind in ("softmax", "fused attention") for work, _ in self.kernels)
        if has_attention:
            return "transformer" if macs["product"] >= OF_PRODUCTS * total else "hybrid"
        if macs["grouped convolution"] >= OF_GROUPS * total:
            return "grouped convnet"
        if macs["depthwise convolution"] >= OF_DEPTHWISE * total:
            return "depthwise convnet"
        return "convnet" if total - macs["product"] >= OF_CONVOLUTIONS * total else "transformer"

    def operators(self) -> list[Operator]:
        """The kernels as a pass that `ctxbench.plugins.predict.passes` takes."""
        return [
            Operator("", "forward", CallSite(), (work,), dtype)
            for (work, dtype), count in self.kernels.items()
            for _ in range(count)
        ]


def passes(path: Path, folder: Path, part: str = PART, modes: Collection[str] = MODES) -> list[Pass]:
    """The passes of a part of the networks in these modes; what meta has seen is kept in `folder`.

    Left out: networks that the installed timm does not know or that the meta device cannot run, which are printed, and
    on the RTX 5090 those whose branches may have been merged.
    """
    frame = pd.read_csv(path)
    frame = frame[frame["model"].map(lambda name: _digest(name)[0] in part) & frame["mode"].isin(modes)]
    return list(_read(frame, folder / _digest(_code())[:16]))


def _read(frame: pd.DataFrame, folder: Path) -> Iterator[Pass]:
    folder.mkdir(parents=True, exist_ok=True)
    for row in frame.itertuples(index=False):
        sheet = device(row.device)
        kept = folder / f"{row.model}-{row.batch}-{row.image}-{row.file}.pickle"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(_seen(row)))
        merges, kernels = pickle.loads(kept.read_bytes())
        if kernels and not (merges and "5090" in sheet.title):
            yield Pass(row.model, row.batch, row.mode, row.memory_format, sheet, row.step_ms / 1e3, kernels)


def _seen(row: Any) -> tuple[bool, Kernels]:
    """Merge flag of the network, and its kernels; none if it cannot run."""
    problem = ""
    for how in ({}, {"img_size": row.image}):  # the second for networks of one size, which is another by default
        try:
            return _run(row, how)
        except (UnpredictableError, RuntimeError, TypeError) as error:
            problem = problem or str(error)
    print(f"{row.model} is left out ({row.mode}, {row.memory_format}): {problem}")
    return False, Counter()


def _run(row: Any, how: dict[str, Any]) -> tuple[bool, Kernels]:
    import timm
    from timm.layers.config import set_fused_attn
    from timm.layers.fast_norm import set_fast_norm

    set_fused_attn(row.mode == "infer")  # PyTorch 1.12, with which training was measured, has none
    set_fast_norm(FAST_NORM in row.file)
    with torch.device("meta"), Autocast():  # a hybrid runs its stem when it is made
        module = timm.create_model(RENAMED.get(row.model, row.model), **how)
        x = torch.empty(row.batch, 3, row.image, row.image)
    if row.memory_format == "nhwc":
        last: Any = {"memory_format": torch.channels_last}  # which the types of `to` do not know
        module, x = module.to(**last), x.contiguous(**last)
    loss = training.CrossEntropy(module) if row.mode == "train" else module
    operators = operators_of(loss, x, mode=row.mode, autocast=torch.float16)
    if row.mode == "train":  # the optimizers of PyTorch 1.12 took one weight after the other
        old = operators_of(loss, x, mode=row.mode, device="cuda-2020", autocast=torch.float16, optimizer="sgd")
        operators += [each for each in old if each.phase == "optimizer"]
    merges = any(hasattr(part, name) for part in module.modules() for name in MERGED)
    return merges, Counter((work, each.dtype) for each in operators for work in each.works)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """The code that decides what is seen."""
    folder = Path(ctxbench.plugins.predict.__path__[0])
    files = (folder / "operators.py", folder / "work.py", Path(training.__file__), Path(__file__))
    return torch.__version__ + "".join(file.read_text(encoding="utf-8") for file in files)
