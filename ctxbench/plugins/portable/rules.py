"""Refusals of targets that have no converter here, by published statements, each with its source."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ctxbench.plugins.portable.graph import GraphCall


@dataclass(frozen=True)
class Refusal:
    """Refusal of a target: of the `operators`, or of each operator with a tensor of more than `most_axes` axes.

    `called` are the operators of PyTorch that become such operators: the first call of one is blamed.
    """

    target: str
    refused: str
    source: str
    operators: Sequence[str] = ()
    called: Sequence[str] = ()
    most_axes: int = 0

    def refuses(self, call: GraphCall) -> bool:
        return call.operator in self.operators or 0 < self.most_axes < call.rank

    def blames(self, calls: Iterable[GraphCall]) -> GraphCall | None:
        """The first call of a module that the rule is about, with its line."""
        return next((call for call in calls if call.operator in self.called or 0 < self.most_axes < call.rank), None)


RULES = (
    Refusal(
        "litert_gpu",
        "a tensor of more than 4 axes",
        "https://github.com/google-ai-edge/LiteRT/issues/2540",
        most_axes=4,
    ),
    Refusal(
        "litert_gpu",
        "`BROADCAST_TO`",
        "https://github.com/google-ai-edge/LiteRT/issues/9191",
        operators=("BROADCAST_TO",),
        called=("expand", "expand_as", "broadcast_to", "group_norm"),
    ),
    Refusal(
        "litert_gpu",
        "`GATHER_ND`",
        "https://github.com/google-ai-edge/LiteRT/issues/5197",
        operators=("GATHER_ND",),
        called=("grid_sampler", "grid_sampler_2d", "index", "gather", "im2col", "take_along_dim"),
    ),
    Refusal(
        "litert_gpu",
        "`RELU_0_TO_1`",
        "https://github.com/google-ai-edge/LiteRT/issues/8598",
        operators=("RELU_0_TO_1",),
        called=("hardtanh", "clamp", "clip"),
    ),
)


def refused_by(
    target: str, operators: Sequence[GraphCall], calls: Sequence[GraphCall]
) -> tuple[list[str], GraphCall | None]:
    """Refusals by the rules of a target, one an operator, with its line; and the first call that is blamed for it.

    `operators` are those that the rules read, `calls` those of the exported module, which have lines.
    """
    found, first = [], None
    for operator in operators:
        if rule := next((rule for rule in RULES if rule.target == target and rule.refuses(operator)), None):
            call = rule.blames(calls)
            first = first or call
            axes = f" of {operator.rank} axes" * (rule.most_axes > 0)
            found.append(f"{operator.operator}{axes}{f' ({call.line})' if call and call.line else ''}")
    return found, first
