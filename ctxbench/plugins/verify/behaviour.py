"""Checks of how a module behaves: batch items, gradients, repeatability, state, modes."""

import io
from dataclasses import replace

import torch
from torch import nn

from ctxbench.meta.built import converted
from ctxbench.meta.influence import forward
from ctxbench.plugins.verify.contract import CheckResult
from ctxbench.plugins.verify.subject import OVERWRITES, Subject, difference, failed, listed, passed


def batch_items(subject: Subject) -> CheckResult:
    """In eval, an image's output does not depend on the other images of its batch."""
    module = subject.randomised()
    x, other = subject.image(seed=0), subject.image(seed=1)
    with torch.no_grad():
        y = forward(module, x)
        for kept, changed in ((0, 1), (1, 0)):
            mixed = x.clone()
            mixed[changed] = other[changed]
            moved = difference(y[kept], forward(module, mixed)[kept])
            if moved > subject.agrees:
                return failed(
                    f"item {kept} of the batch changes by {moved:.2g} of its maximum when only item {changed} changes",
                    "an operation mixes the images of the batch: a softmax or sum over dim 0, a view that merges B, or "
                    "mm for bmm",
                )
    return passed("the output of an item stays the same when the other item changes")


def gradients(subject: Subject) -> CheckResult:
    """A backward pass from the sum reaches the input and every parameter with finite gradients."""
    zero: list[str] = []
    count = 0
    for module, at_start in ((converted(subject.build(), "cpu", subject.dtype), True), (subject.randomised(), False)):
        module.train()
        x = subject.image().requires_grad_()
        y = forward(module, x)
        if not y.requires_grad:
            return failed("the output has no gradient", "torch.no_grad, detach or .data in forward stops the gradient")
        y.sum().backward()
        leaves = {"the input": x} | {n: p for n, p in module.named_parameters() if p.requires_grad}
        count = len(leaves) - 1
        missing = [name for name, leaf in leaves.items() if leaf.grad is None]
        if missing:
            return failed(
                f"no gradient reaches {listed(missing)}",
                "forward does not use it, or no_grad, detach or .data stops its gradient; a constant is a buffer, or "
                "has requires_grad=False",
            )
        bad = [name for name, leaf in leaves.items() if leaf.grad is not None and not torch.isfinite(leaf.grad).all()]
        if bad:
            return failed(
                f"the gradient of {listed(bad)} holds NaN or infinity",
                "look for a square root, a norm or a division at zero: add an epsilon to its argument",
            )
        if at_start:
            zero = [name for name, leaf in leaves.items() if leaf.grad is not None and not leaf.grad.any()]
    at_zero = f"; exactly zero at initialisation: {listed(zero)} (usual if a factor in the module starts at 0)"
    return passed(f"finite at the input and at all {count} parameters{at_zero if zero else ''}")


def repeatable(subject: Subject) -> CheckResult:
    """Two forward passes in eval mode with the same seed give bit-identical outputs."""
    module, x = subject.randomised(), subject.image()
    with torch.no_grad():
        first, second, third = (forward(module, x, seed) for seed in (1, 1, 2))
    if not torch.equal(first, second):
        return failed(
            f"two eval forward passes with the same seed differ by {difference(first, second):.2g}",
            "use only torch's default random generator, keep no state between forward passes, no dropout in eval()",
        )
    fact = "two eval forward passes with the same seed are bit-identical"
    if not torch.equal(first, third):
        drawn = "; it draws random numbers in eval, and others give another output: dropout needs self.training"
        return replace(passed(f"{fact}{drawn}"), mark="random")
    return passed(fact)


def reads_input(subject: Subject) -> CheckResult:
    """An input that has changed in its place is read again, and not answered with the output of what it was."""
    module, x, other = subject.randomised(), subject.image(seed=0), subject.image(seed=1)
    with torch.no_grad():
        expected = forward(subject.randomised(), other)
        first = forward(module, x).clone()
        x.data.copy_(other)  # through `data`, the tensor's count of changes stays as it is
        second = forward(module, x)
    if torch.equal(first, second) and not torch.equal(first, expected):
        return failed(
            "after its input has changed in its place, it gives the output of the input before",
            "forward keeps an output and finds it again by the input's identity or storage: compute it every time",
        )
    return passed("the output follows an input that changes in its place")


def keeps_state(subject: Subject) -> CheckResult:
    """A forward pass in eval mode changes no parameter, no buffer and not its input."""
    module, x = subject.randomised(), subject.image()
    kept = x.clone()
    before = {name: tensor.clone() for name, tensor in _tensors(module).items()}
    with torch.no_grad():
        forward(module, x)
    after = _tensors(module)
    if not torch.equal(x, kept):
        return failed(*OVERWRITES)
    if added := sorted(after.keys() - before.keys()):
        return failed(
            f"an eval forward pass adds {listed(added)}",
            "create it in __init__: a state dict that is saved before the first pass lacks it",
        )
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    if changed:
        return failed(
            f"an eval forward pass changes {listed(changed)}", "update state in training only: `if self.training:`"
        )
    return passed(f"{len(before)} parameters and buffers, and the input, are unchanged")


def state_dict(subject: Subject) -> CheckResult:
    """A state dict that is saved and loaded into another instance gives the same output."""
    module, x = subject.randomised(seed=0), subject.image()
    with torch.no_grad():
        forward(module.train(), x)  # running statistics and state that is created late appear
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        other = subject.randomised(seed=5)  # with noise, since copies of an instance have its weights
        try:
            other.load_state_dict(torch.load(file, weights_only=True))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            return failed(reason, "create every parameter and buffer in __init__, with its final shape")
        moved = difference(forward(module.eval(), x), forward(other.eval(), x))
    if moved > subject.agrees:
        return failed(
            f"after the state dict is saved and loaded, the output differs by {moved:.2g}",
            "a value that forward uses is a plain attribute: make it a parameter or a buffer",
        )
    return passed(f"{len(module.state_dict())} tensors saved and loaded; the output is the same")


def modes(subject: Subject) -> CheckResult:
    """train() and eval() reach every submodule, and both modes run."""
    module, x = subject.build(), subject.image(dtype=torch.float32)
    for training in (True, False):
        name = "train" if training else "eval"
        if (module.train() if training else module.eval()) is not module:
            return failed(f"{name}() does not return the module", "if you override train(), end it with `return self`")
        left = [path or type(child).__name__ for path, child in module.named_modules() if child.training != training]
        if left:
            return failed(
                f"{name}() does not reach {listed(left)}", "if you override train(), call super().train(mode)"
            )
        y = forward(module, x)
        if y.shape[0] != x.shape[0] or not torch.isfinite(y).all():
            return failed(
                f"in {name} mode the output has the shape {list(y.shape)}, or holds NaN or infinity",
                "look at the code that reads self.training",
            )
    return passed("both reach every submodule, and the forward pass runs in both modes")


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
