"""Inductor compiles a wrong gradient of a softmax whose gradient arrives transposed."""

import torch


def transposed(x):
    return torch.softmax(x, dim=2).transpose(1, 2).contiguous()


generator = torch.Generator().manual_seed(0)
x, given = torch.randn(1, 1024, 64, generator=generator), torch.randn(1, 64, 1024, generator=generator)
share, arriving = torch.softmax(x.double(), 2), given.double().transpose(1, 2)
exact = share * (arriving - (arriving * share).sum(2, keepdim=True))
for name, function in (("eager", transposed), ("compiled", torch.compile(transposed))):
    leaf = x.clone().requires_grad_()
    function(leaf).backward(given)
    error = float((leaf.grad - exact).norm() / exact.norm())
    print(f"relative error of the {name} gradient: {error:.2g}")
    assert (error > 0.1) == (name == "compiled")
