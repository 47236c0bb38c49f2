"""On the CPU, batch normalisation of one image has a wrong gradient where positions come before channels."""

import torch

norm = torch.nn.BatchNorm2d(3).double()
generator = torch.Generator().manual_seed(0)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


for images in (1, 2):
    x, direction, weights = random(images, 3, 4, 5).requires_grad_(), random(images, 3, 4, 5), random(images, 20, 3)

    def loss(x, weights=weights):
        return (norm(x).flatten(2).transpose(1, 2).contiguous() * weights).sum()

    (gradient,) = torch.autograd.grad(loss(x), x)
    with torch.no_grad():
        slope = (loss(x + 1e-6 * direction) - loss(x - 1e-6 * direction)) / 2e-6
    error = float(abs((gradient * direction).sum() - slope) / abs(slope))
    print(f"{images} images, relative error of the slope: {error:.2g}")
    assert (error > 0.1) == (images == 1)
