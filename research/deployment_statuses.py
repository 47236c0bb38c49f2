"""Published statuses of networks on targets without a converter here, beside what the rules of `portable` say of them.

`python research/deployment_statuses.py FILE.csv [NETWORK ...]` converts these networks, or all, and writes what the
rules refuse; rows of the file about other networks are kept. `python research/deployment_statuses.py join FILE.csv`
writes results/deployment-statuses: statuses.csv and evidence.json. It needs the extra `litert`, timm and torchvision.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(sys.path.pop(0))  # litert_torch may import transformers, which is also a file beside this one

import litert_torch
import pandas as pd
import torch
from stamp import stamp, write_stamp
from torch import Tensor, nn
from torch.nn import functional

from ctxbench.plugins.portable.graph import litert_calls
from ctxbench.plugins.portable.rules import RULES

OUT = Path(__file__).resolve().parents[1] / "results" / "deployment-statuses"
# Nodes that LITERT_CL took of each file, on a Galaxy S25 Ultra, LiteRT 2.2.0, 2026-09-18.
BOARD = (
    "https://github.com/google-ai-edge/litert-samples/blob/187fde0349a55e619a0d60a4de8b823a189e5c3f/benchmark/"
    "leaderboard/data/board.json"
)
TABLE = "https://github.com/google-ai-edge/LiteRT/issues/2448"
CARDS = "https://huggingface.co/litert-community/"


@dataclass(frozen=True)
class Status:
    """Published status of a network on a target: whether it takes all of it, and of how many operators, if known."""

    network: str
    target: str
    whole: bool
    source: str
    operators: int | None = None


STATUSES = (
    Status("torchvision:shufflenet_v2_x0_5", "litert_gpu", False, BOARD, 190),
    Status("timm:vit_base_patch16_224", "litert_gpu", False, BOARD, 400),
    Status("timm:deit_small_patch16_224", "litert_gpu", False, f"{CARDS}deit_small_patch16_224"),
    Status("timm:swin_small_patch4_window7_224", "litert_gpu", False, f"{CARDS}swin_small_patch4_window7_224"),
    Status("torch:expand", "litert_gpu", False, "https://github.com/google-ai-edge/LiteRT/issues/9191"),
    Status("torch:Hardtanh", "litert_gpu", False, "https://github.com/google-ai-edge/LiteRT/issues/8598"),
    Status("torch:grid_sample", "litert_gpu", False, f"{CARDS}D-FINE-S-LiteRT"),
    Status("torch:MultiheadAttention", "litert_gpu", False, "https://github.com/google-ai-edge/litert-torch/pull/1079"),
    Status("torch:PReLU", "litert_gpu", False, "https://github.com/google-ai-edge/litert-torch/pull/1090"),
    Status("torch:PixelShuffle", "litert_gpu", False, "https://github.com/google-ai-edge/litert-torch/pull/1090"),
    Status("torchvision:resnet18", "litert_gpu", True, BOARD, 37),
    Status("torchvision:mobilenet_v2", "litert_gpu", True, BOARD, 70),
    Status("torchvision:squeezenet1_1", "litert_gpu", True, BOARD, 40),
    Status("torchvision:mobilenet_v3_small", "litert_gpu", True, BOARD, 122),
    Status("torchvision:convnext_tiny", "litert_gpu", True, BOARD, 183),
    Status("torchvision:googlenet", "litert_gpu", True, BOARD, 105),
    Status("torchvision:mobilenet_v3_large", "litert_gpu", True, BOARD, 134),
    Status("torchvision:efficientnet_b0", "litert_gpu", True, BOARD, 244),
    Status("torchvision:resnet50", "litert_gpu", True, BOARD, 78),
    Status("torchvision:alexnet", "litert_gpu", True, TABLE),
    Status("torchvision:inception_v3", "litert_gpu", True, BOARD, 141),
    Status("torchvision:densenet121", "litert_gpu", True, TABLE),
    Status("torchvision:efficientnet_v2_s", "litert_gpu", True, BOARD, 508),
    Status("timm:regnety_120", "litert_gpu", True, TABLE),
)


class Of(nn.Module):
    """A function of the input, and of a layer if there is one."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


def _sampled(x: Tensor) -> Tensor:
    return functional.grid_sample(x, x.permute(0, 2, 3, 1)[..., :2].tanh(), align_corners=False)


def _attended(x: Tensor, attention: nn.Module) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2)
    result: Tensor = attention(tokens, tokens, tokens, need_weights=False)[0]
    return result


# Layers and functions of torch that statuses are about, for 8 channels.
SMALL: dict[str, Callable[[], nn.Module]] = {
    "expand": lambda: Of(lambda x: x[:, :, :1].expand(-1, -1, 8, -1) + 0.0),
    "Hardtanh": lambda: nn.Hardtanh(0, 1),
    "grid_sample": lambda: Of(_sampled),
    "MultiheadAttention": lambda: Of(_attended, nn.MultiheadAttention(8, 2, batch_first=True)),
    "PReLU": lambda: nn.PReLU(),
    "PixelShuffle": lambda: nn.PixelShuffle(2),
}


def built(network: str) -> tuple[nn.Module, Tensor]:
    """A network with random weights, and its input."""
    package, name = network.split(":")
    if package == "torch":
        return SMALL[name](), torch.randn(1, 8, 6, 4)
    image = torch.randn(1, 3, *[299 if name == "inception_v3" else 224] * 2)
    if package == "timm":
        import timm

        return timm.create_model(name), image
    import torchvision

    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return getattr(torchvision.models, name)(**more), image


def row_of(status: Status) -> dict[str, Any]:
    """A status beside the operators that are read here, and of each rule how many it refuses."""
    model, x = built(status.network)
    model.eval()
    converted: Any = litert_torch.convert(model, (x,))
    operators = litert_calls(converted.model_content())
    refused = {
        rule.refused: count
        for rule in RULES
        if rule.target == status.target and (count := sum(rule.refuses(each) for each in operators))
    }
    return {
        "network": status.network,
        "target": status.target,
        "published": "whole" if status.whole else "refused",
        "published_operators": status.operators,
        "operators": len(operators),
        "refused": "; ".join(f"{name}: {count}" for name, count in refused.items()),
        "source": status.source,
    }


def main() -> None:
    if sys.argv[1] == "join":
        evidence = stamp()
        found = pd.read_csv(sys.argv[2]).set_index("network")
        write_stamp(OUT, evidence)
        found.loc[[each.network for each in STATUSES if each.network in found.index]].to_csv(OUT / "statuses.csv")
        return
    path = Path(sys.argv[1])
    for status in STATUSES:
        if sys.argv[2:] and status.network not in sys.argv[2:]:
            continue
        row = row_of(status)
        kept = pd.read_csv(path, dtype={"published_operators": "Int64"}) if path.exists() else pd.DataFrame()
        kept = kept[kept["network"] != row["network"]] if len(kept) else kept
        pd.concat([kept, pd.DataFrame([row])]).to_csv(path, index=False)


if __name__ == "__main__":
    main()
