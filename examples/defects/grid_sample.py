"""On the CPU, grid_sample of a large map in half types reads other memory."""

import torch
from torch.nn.functional import grid_sample

zeros_then_ones = torch.stack((torch.zeros(1, 256, 256), torch.ones(1, 256, 256)))
grid = torch.rand(1, 64, 64, 2, generator=torch.Generator().manual_seed(0)) - 0.5  # inside of the map
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    ones = zeros_then_ones.to(dtype)[1:]
    found = grid_sample(ones, grid.to(dtype), align_corners=False).float()
    print(dtype, "samples of ones:", float(found.min()), "to", float(found.max()))
    assert (found.min() > 0.9) == (dtype == torch.float32)
