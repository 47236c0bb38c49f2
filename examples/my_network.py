"""A network of your own: `ctxbench run --network examples/my_network.py:my_network --modules sa,ham_nmf`."""

from torch import Tensor, nn

from ctxbench.registry.networks import MakeModule, network


class MyNetwork(nn.Module):
    def __init__(self, make_module: MakeModule) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 4, stride=4), nn.BatchNorm2d(64), nn.ReLU())
        self.context = make_module(64)  # the slot: the module under test, for 64 channels
        self.classifier = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.context(self.stem(x)).mean((2, 3)))
        return scores


@network("my_network", shape=(1, 3, 128, 128), multiple=4)
def my_network(make_module: MakeModule) -> nn.Module:
    return MyNetwork(make_module)
