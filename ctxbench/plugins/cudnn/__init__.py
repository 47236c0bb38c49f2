"""cuDNN, asked for the workspaces of convolutions on a card that is not here."""

from ctxbench.plugin import Plugin

PLUGIN = Plugin(
    about="asks cuDNN, without a GPU, what its convolutions take on a card, and adds it to a predicted peak",
    needs=("memory",),
    workspaces=("on_card:with_workspaces",),
    libraries=("ask:identities",),
    extras={"cudnn": ("nvidia",)},
    notes={
        "cudnn_asked": (
            "cuDNN {version} was asked without a GPU what {count} convolutions take on {card}: at most {mib:,.1f} MiB, "
            "in engine {engine} ({convolution}).",
            "cuDNN {version} was asked without a GPU what convolutions take on {card}.",
        ),
        "cudnn_rule": (
            "{count} of these engines it refuses without a device (cuBLAS's, Winograd's in steps, depthwise ones): a "
            "rule, which was read off an H200, tells their workspace, up to {mib:,.1f} MiB.",
            "For engines that it refuses without a device a rule, which was read off an H200, tells the workspace.",
        ),
        "cudnn_range": (
            "A GPU may take other workspaces than cuDNN says without one. By what an H200 took, the peak is from "
            "{low:,.1f} to {high:,.1f} MiB of requested blocks.",
            "A GPU may take other workspaces than cuDNN says without one: the row's note has the range of the peak.",
        ),
        "cudnn_elsewhere": "These workspaces were compared with an H200 and cuDNN 9.19 alone.",
        "cudnn_other": (
            "With cuDNN {version} the peak is {mib:,.1f} MiB, and {differ} of {count} convolutions take another "
            "workspace.",
            "What cuDNN {version} would take, too: the row's note has the peak.",
        ),
        "cudnn_attention": (
            "PyTorch takes cuDNN's attention on this card. The workspace of its gradient, up to {mib:,.1f} MiB, is by "
            "a formula that was read off an H200.",
            "PyTorch takes cuDNN's attention on this card; its workspace is by a formula that was read off an H200.",
        ),
        "cudnn_mask": (
            "cuDNN's attention takes the mask as it is. With the aligned copy of another kernel the peak is {mib:,.1f} "
            "MiB.",
            "cuDNN's attention takes the mask as it is; the row's note has the peak with another kernel's copy of it.",
        ),
        "cudnn_not_asked": "cuDNN was not asked for its workspaces on {card}: {reason}.",
    },
)
