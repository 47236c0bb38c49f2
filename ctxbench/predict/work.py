"""What a kernel has to do, and the time that a device's data sheet and an efficiency give it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from ctxbench.devices.sheet import Sheet

Class = Literal[
    "large product",
    "skinny product",
    "unaligned product",
    "convolution 1x1",
    "convolution 3x3",
    "other convolution",
    "depthwise convolution",
    "elementwise",
    "row reduction",
    "norm",
    "FFT",
    "solver",
    "fused attention",
    "unknown",
]
Bound = Literal["arithmetic", "bandwidth", "launches"]

# A product with a side below this does not fill the tiles of a large one; rows of another multiple are read one by one.
SKINNY, ALIGNED = 128, 4
# Sides of the tiles that a product is computed in, and the least depth of a part if the depth is split.
_SIDES = (16, 32, 64, 128, 256)
_LARGEST_TILE = 128 * 256
_SPLITS = (1, 2, 4, 8, 16, 32)
_LEAST_DEPTH = 64
# A tile of m x n reads m + n numbers for m * n multiply-accumulates: at this ratio it reaches half of its rate.
_HALF_RATE = 16
# Rows that a processor reduces at a time (blocks of 1024 of its 2048 threads), and the share of the L2 they may take.
_ROWS_IN_FLIGHT, _L2_SHARE = 2, 0.5
# Winograd's F(4 x 4, 3 x 3) (Lavin and Gray, CVPR 2016): 36 products for each 4 x 4 outputs.
_WINOGRAD = 4


@dataclass(frozen=True)
class Product:
    """`batch` products of [m, k] and [k, n]."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def macs(self) -> int:
        return self.batch * self.m * self.n * self.k

    @property
    def elements(self) -> int:
        """Numbers that are read and written."""
        return self.batch * (self.m * self.n + self.m * self.k + self.k * self.n)

    @property
    def kind(self) -> Class:
        """The class of a matrix product with these sizes."""
        if self.n % ALIGNED or self.k % ALIGNED:
            return "unaligned product"
        return "skinny product" if min(self.m, self.n, self.k) < SKINNY else "large product"

    def tiled_flops(self, processors: int) -> float:
        """FLOPs of the fastest tiling, in full tiles, full waves of `processors` tiles, at the rate of an endless tile.

        A wave takes as long with one tile as with one for each processor. The depth may be split over more tiles.
        """
        return min(
            self._one_tiling(rows, columns, parts, processors)
            for rows, columns in product(_SIDES, repeat=2)
            for parts in _SPLITS
            if rows * columns <= _LARGEST_TILE and (parts == 1 or self.k >= parts * _LEAST_DEPTH)
        )

    def _one_tiling(self, rows: int, columns: int, parts: int, processors: int) -> float:
        tiles = self.batch * math.ceil(self.m / rows) * math.ceil(self.n / columns) * parts
        intensity = rows * columns / (rows + columns)
        rate = intensity / (intensity + _HALF_RATE)
        full = math.ceil(tiles / processors) * processors
        return 2 * full * rows * columns * math.ceil(self.k / parts) / rate


@dataclass(frozen=True)
class Work:
    """One kernel: its class, the bytes that it moves, and what it computes.

    `product` is the product that it is or that it unfolds to, `winograd` the one that Winograd's algorithm puts in its
    place. `flops` counts other arithmetic. `steps` are dependent ones that cannot overlap, as a solver's. A reduction
    reads its rows of `row_bytes` twice: if those in flight do not fit into the L2 cache, from memory (`again_bytes`).
    """

    kind: Class
    bytes: int
    product: Product | None = None
    winograd: Product | None = None
    flops: float = 0.0
    steps: int = 0
    row_bytes: int = 0
    again_bytes: int = 0

    def ways(self, sheet: Sheet, itemsize: int = 4) -> Iterator[tuple[float, float]]:
        """FLOPs and bytes of each way to compute it; the fastest counts."""
        flops = self.flops
        if self.product is not None and self.kind != "depthwise convolution":
            flops += self.product.tiled_flops(sheet.processors)
        elif self.product is not None:
            flops += 2 * self.product.macs
        in_flight = _ROWS_IN_FLIGHT * sheet.processors * self.row_bytes
        again = self.again_bytes if in_flight > _L2_SHARE * sheet.l2_mib * 2**20 else 0
        yield flops, float(self.bytes + again)
        if self.winograd is not None:
            yield self.winograd.tiled_flops(sheet.processors), float(self.winograd.elements * itemsize)


def winograd_of(images: int, height: int, width: int, inputs: int, outputs: int) -> Product:
    """The products of a 3x3 convolution with this output size under F(4 x 4, 3 x 3): one for each of 36 positions."""
    tiles = images * math.ceil(height / _WINOGRAD) * math.ceil(width / _WINOGRAD)
    return Product((_WINOGRAD + 2) ** 2, tiles, outputs, inputs)
