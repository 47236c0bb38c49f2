"""cuDNN, asked for the workspaces of convolutions on a card that is not here."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="asks cuDNN, without a GPU, what its convolutions take on a card, and adds it to a predicted peak",
    needs=("memory",),
    workspaces=("on_card:with_workspaces",),
    extras={"cudnn": ("nvidia",)},
)
