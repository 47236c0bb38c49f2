"""Networks and blocks with a norm whose gradient PyTorch reads in a wrong order on a CPU, for one image.

`python research/norm_networks.py` writes results/gradient-proofs/networks.csv: of ctxbench's blocks, networks and
examples, and of timm's models the first of each file. Each makes training steps without data: `trained` as it is,
`frozen` in eval with a gradient of the input alone. True: a batch norm's backward gets strides for which its kernel,
tried on drawn numbers, gives another gradient than for contiguous ones.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from gradient_proofs import OUT
from torch import nn

from ctxbench import registry
from ctxbench.meta.gradient_order import misread
from ctxbench.meta.outputs import loss_of
from ctxbench.meta.recorder import Recorder
from ctxbench.networks._parts import timm
from ctxbench.registry import networks

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CHANNELS = 64
Make = Callable[[], nn.Module]
# Of the inputs of timm's models, which are tried in this order.
SIDES = (224, 256, 384, 448)
SLOW = "sequencer"  # its LSTMs take minutes without data
COLUMNS = ["source", "name", "shape", "trained", "frozen", "reason", "torch"]


def of_timm() -> Iterator[tuple[str, Make, list[tuple[int, ...]]]]:
    library = timm()
    for file in (each for each in library.list_modules() if each != SLOW):
        name = library.list_models(module=file)[0]
        yield name, partial(library.create_model, name), [(1, 3, side, side) for side in SIDES]


def of_ctxbench() -> Iterator[tuple[str, Make, list[tuple[int, ...]]]]:
    for key in (*registry.names(), f"{EXAMPLES / 'my_module.py'}:MyContext"):
        entry = registry.get(key)
        yield key, partial(entry.build, CHANNELS, {}), [(1, CHANNELS, side, side) for side in (28, 32)]
    for key in (*networks.names(), f"{EXAMPLES / 'my_network.py'}:my_network"):
        found = networks.get(key)
        shape = (1, *(found.shape or (1, 3, 128, 128))[1:])
        yield key, partial(found.build, lambda _: nn.Identity(), shape), [shape]


def is_wrong(module: nn.Module, shape: tuple[int, ...], frozen: bool) -> bool:
    module.train(not frozen).requires_grad_(not frozen)
    with Recorder(module) as recorder:
        loss_of(module(torch.empty(shape).requires_grad_())).backward()
    return bool(misread(recorder.calls))


def rows() -> Iterator[dict[str, object]]:
    for source, models in (("ctxbench", of_ctxbench()), ("timm", of_timm())):
        for name, make, shapes in models:
            row: dict[str, object] = {"source": source, "name": name.removeprefix(f"{EXAMPLES}/")}
            for shape in shapes:
                try:
                    with torch.device("meta"):
                        module = make()
                        found = {what: is_wrong(module, shape, what == "frozen") for what in ("trained", "frozen")}
                    row |= {"shape": "x".join(map(str, shape)), **found, "reason": ""}
                    break
                except Exception as error:  # of any network; the reason stands in the row
                    row["reason"] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            print(row, file=sys.stderr, flush=True)
            yield row | {"torch": torch.__version__}


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = pd.DataFrame(rows())
    found.to_csv(OUT / "networks.csv", index=False, columns=COLUMNS)
    for what in ("trained", "frozen"):
        print(what, *found.loc[found[what] == True, "name"])  # noqa: E712  # of three values
