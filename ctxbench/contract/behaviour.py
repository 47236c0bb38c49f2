"""Checks of how a module behaves: batch items, gradients, repeatability, state, modes."""

import io

import torch
from torch import nn

from ctxbench.contract.subject import (
    AGREES,
    Finding,
    Subject,
    difference,
    failed,
    forward,
    listed,
    passed,
)


def batch_items(subject: Subject) -> Finding:
    """In eval, an image's output does not depend on the other images of its batch."""
    module = subject.opened()
    x, other = subject.image(seed=0), subject.image(seed=1)
    with torch.no_grad():
        y = forward(module, x)
        for kept, changed in ((0, 1), (1, 0)):
            mixed = x.clone()
            mixed[changed] = other[changed]
            moved = difference(y[kept], forward(module, mixed)[kept])
            if moved > AGREES:
                return failed(
                    f"item {kept} of the batch changes by {moved:.2g} of its size when only item {changed} changes",
                    "something runs across the batch axis: look for a softmax or sum over dim 0, a reshape or view "
                    "that folds B into another axis, a mm where bmm is meant",
                )
    return passed("an item keeps its output when the other item changes")


def gradients(subject: Subject) -> Finding:
    """A backward pass from the sum reaches the input and every parameter with finite gradients."""
    zero: list[str] = []
    count = 0
    for module, at_start in ((subject.build().double(), True), (subject.opened(), False)):
        module.train()
        x = subject.image().requires_grad_()
        y = forward(module, x)
        if not y.requires_grad:
            return failed("the output needs no gradient", "forward is cut by torch.no_grad, detach or .data")
        y.sum().backward()
        leaves = {"the input": x} | {n: p for n, p in module.named_parameters() if p.requires_grad}
        count = len(leaves) - 1
        missing = [name for name, leaf in leaves.items() if leaf.grad is None]
        if missing:
            return failed(
                f"no gradient reaches {listed(missing)}",
                "it takes no part in forward, or no_grad, detach or .data cuts it off; if it is meant to be constant, "
                "make it a buffer or requires_grad_(False)",
            )
        bad = [name for name, leaf in leaves.items() if leaf.grad is not None and not torch.isfinite(leaf.grad).all()]
        if bad:
            return failed(
                f"the gradient of {listed(bad)} holds NaN or infinity",
                "look for a square root, a norm or a division at zero: add an epsilon inside it",
            )
        if at_start:
            zero = [name for name, leaf in leaves.items() if leaf.grad is not None and not leaf.grad.any()]
    asleep = (
        f"; exactly zero at initialisation: {listed(zero)} (usual behind a factor that starts at 0)" if zero else ""
    )
    return passed(f"finite, at the input and at {count} of {count} parameters{asleep}")


def repeatable(subject: Subject) -> Finding:
    """Two eval forwards from one seed agree to the bit."""
    module, x = subject.opened(), subject.image()
    with torch.no_grad():
        first, second = forward(module, x), forward(module, x)
    if not torch.equal(first, second):
        return failed(
            f"two eval forwards with one seed differ by {difference(first, second):.2g}",
            "draw from torch's generator alone, keep no state between forwards, let eval() switch off dropout",
        )
    return passed("two eval forwards with one seed are equal to the bit")


def keeps_state(subject: Subject) -> Finding:
    """An eval forward changes neither the parameters and buffers nor its input."""
    module, x = subject.opened(), subject.image()
    kept = x.clone()
    before = {name: tensor.clone() for name, tensor in _tensors(module).items()}
    with torch.no_grad():
        forward(module, x)
    after = _tensors(module)
    if not torch.equal(x, kept):
        return failed(
            "forward changes its input in place", "a first operation in place writes into the caller's tensor"
        )
    if added := sorted(after.keys() - before.keys()):
        return failed(
            f"an eval forward adds {listed(added)}", "make it in __init__: a state dict saved before would lack it"
        )
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    if changed:
        return failed(
            f"an eval forward changes {listed(changed)}", "update state in training only: `if self.training:`"
        )
    return passed(f"{len(before)} parameters and buffers, and the input, stay as they are")


def state_dict(subject: Subject) -> Finding:
    """A state dict, saved, read and loaded into another instance, gives the same output."""
    module, x = subject.opened(seed=0), subject.image()
    with torch.no_grad():
        forward(module.train(), x)  # running statistics and lazily made state appear
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        other = subject.build(seed=5).double()
        try:
            other.load_state_dict(torch.load(file, weights_only=True))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            return failed(reason, "make every parameter and buffer in __init__, with its final shape")
        moved = difference(forward(module.eval(), x), forward(other.eval(), x))
    if moved > AGREES:
        return failed(
            f"after a round trip of the state dict the output differs by {moved:.2g}",
            "some state is a plain attribute: make it a parameter or register_buffer it",
        )
    return passed(f"{len(module.state_dict())} tensors saved and loaded; the output is the same")


def modes(subject: Subject) -> Finding:
    """train() and eval() reach every submodule, and both modes run."""
    module, x = subject.build(), subject.image(dtype=torch.float32)
    for training in (True, False):
        name = "train" if training else "eval"
        if (module.train() if training else module.eval()) is not module:
            return failed(f"{name}() does not return the module", "end an overridden train() with `return self`")
        left = [path or type(child).__name__ for path, child in module.named_modules() if child.training != training]
        if left:
            return failed(
                f"{name}() leaves {listed(left)} behind", "an overridden train() should call super().train(mode)"
            )
        y = forward(module, x)
        if y.shape[0] != x.shape[0] or not torch.isfinite(y).all():
            return failed(
                f"the {name} forward gives {list(y.shape)} with NaN or infinity", "look at what self.training does"
            )
    return passed("both switch every submodule, and both run")


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
