"""Work of a kernel, and the time that a device's data sheet and an efficiency give it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

from ctxbench.plugins.predict.sheet import DeviceSpec, Instructions

Class = Literal[
    "large product",
    "skinny product",
    "shallow product",
    "unaligned product",
    "deep product",
    "convolution 1x1",
    "strided convolution 1x1",
    "convolution 3x3",
    "other convolution",
    "grouped convolution",
    "depthwise convolution",
    "elementwise",
    "transcendental",
    "copy",
    "pooling",
    "irregular",
    "row reduction",
    "softmax",
    "norm",
    "batch norm",
    "FFT",
    "solver",
    "fused attention",
    "unknown",
]
# Forms of kernels on a processor, whose class alone does not tell their rate: taps of a depthwise filter, or that no
# fast kernel takes it; numbers of a row of a softmax and keys of an attention, up to LONG; a product with a vector; a
# copy of whole rows; reads of a pooling for each number that it moves; what finds its maps in the cache, or new ones as
# in training.
NO_FAST, LONG, VECTOR, ROWS, CACHED, KEPT = 1e6, 196, 0.01, 100.0, 1.0, 2.0
# What oneDNN's fast kernels take of depthwise convolutions: columns of padding to the left, by instruction set, and the
# widest filter of a weight's gradient (oneDNN 3.12 tells in its log which kernel runs).
FAST_REACH: Mapping[Instructions, int] = {"AVX512": 6, "AVX2": 4}
FAST_WIDTH = 3
# To begin a window takes a processor as long as so many of its numbers: average pooling on a Xeon takes 10 ns for each
# output and 0.9 ns for each number.
WINDOW_READS = 10
# What a kernel computes of an operator: its output, or a gradient.
Turn = Literal["forward", "input gradient", "weight gradient"]
Bound = Literal["arithmetic", "bandwidth", "launches"]
# Convolutions of few channels a group read either layout without a conversion, each at a rate of its own.
NARROW: tuple[Class, ...] = ("grouped convolution", "depthwise convolution")
CHANNELS_LAST = ", channels last"

# A product with a side below this does not fill the tiles of a large one; rows of another multiple are read one by one.
SKINNY, ALIGNED = 128, 4
# A product sums over at least this many times the longer side of its output, as a weight's gradient does.
DEEP = 8
# Sides of the tiles that a product is computed in, and the least depth of a part if the depth is split.
_SIDES = (16, 32, 64, 128, 256)
_LARGEST_TILE = 128 * 256
_SPLITS = (1, 2, 4, 8, 16, 32)
_LEAST_DEPTH = 64
# A tile of m x n reads m + n numbers for m * n multiply-accumulates: at this ratio it reaches half of its rate.
_HALF_RATE = 16
# Bytes that a number moves that is read alone: a sector (CUDA C++ Best Practices Guide, access to global memory).
SECTOR = 32
# Rows that a processor reduces at a time (blocks of 1024 of its 2048 threads), and the share of the L2 they may take.
_ROWS_IN_FLIGHT, _L2_SHARE = 2, 0.5
# What one block of threads moves, bytes a second, over the share of its class: layer norm over 4 million numbers takes
# 6 to 10 ms on KernelBench's cards from T4 to B200, three passes over 16.8 MB a block; group norm is alike.
BLOCK_RATE = 10e9
# Seconds of one thread for a number that it reads and writes: EfficientFormerV2, which timm measured on four cards,
# takes 0.24 to 0.38 microseconds for each map that it upsamples.
THREAD_S = 0.3e-6
# Threads that run together. Those of them that add to one number wait for each other: seconds a sum, over the share of
# the bandwidth of irregular kernels, 0.4. The gradients of `ppm`, which is of half A, take 18 to 32 ps for each sum and
# each one that it waits for, in both sizes and all dtypes on an H200.
WARP, ADD_S = 32, 24e-12 * 0.4
# That of one thread for a tap of a depthwise filter in PyTorch's own kernel, where each output has a thread
# (aten/src/ATen/native/cuda/DepthwiseConv2d.cu), over the share of its class, 0.54: filters as large as the map take 81
# to 89 ns a tap on an H200.
TAP_S = 46e-9
# That of a tile for a step of the depth of a product in a batch, whose depth cuBLAS does not split, over the share of
# the bandwidth of its class, 0.49: linear attention's products over 16,384 positions take 32 to 39 ns a position on an
# H200.
DEPTH_S = 17e-9
# Winograd's F(4 x 4, 3 x 3) (Lavin and Gray, CVPR 2016): 36 products for each 4 x 4 outputs.
_WINOGRAD = 4


def itemsize(dtype: str) -> int:
    return {"float64": 8, "float16": 2, "bfloat16": 2}.get(dtype, 4)


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
        if self.k >= DEEP * max(self.m, self.n):
            return "deep product"
        if self.n % ALIGNED or self.k % ALIGNED:
            return "unaligned product"
        if min(self.m, self.n) < SKINNY:
            return "skinny product"
        return "shallow product" if self.k < SKINNY else "large product"

    @property
    def form(self) -> float:
        return VECTOR if min(self.m, self.n) == 1 else CACHED

    @cache  # noqa: B019  # of few products, small
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
    place. `flops` counts other arithmetic. `steps` are dependent ones that cannot overlap, as a solver's, and
    `single` says that it solves one matrix, no batch. A reduction reads its rows of `row_bytes` twice: if those in
    flight do not fit into the L2 cache, from memory (`again_bytes`). `across_bytes` surround numbers that are read one
    by one; they are moved where such a map does not fit into it. `blocks`: as many processors can be busy; 0: all.
    `serial_s` are seconds of one thread or block of threads, however many there are. `converted_bytes` are moved beside
    the kernel to take maps to channels last and back, which is how tensor cores read them. `form` is what a processor's
    kernels of one class differ by beside their size, such as the taps of a filter; 0: only by what the caches hold.
    `reach` are columns of padding to the left of a depthwise convolution.
    """

    kind: Class
    bytes: int
    product: Product | None = None
    winograd: Product | None = None
    flops: float = 0.0
    steps: int = 0
    row_bytes: int = 0
    again_bytes: int = 0
    across_bytes: int = 0
    blocks: int = 0
    turn: Turn = "forward"
    single: bool = False
    serial_s: float = 0.0
    converted_bytes: int = 0
    channels_last: bool = False
    form: float = 0.0
    reach: int = 0

    @property
    def group(self) -> str:
        """The class, with the gradient that is computed and the layout: what efficiencies are fitted to."""
        turn = f", {self.turn}" if self.turn != "forward" else ""
        return self.kind + turn + (CHANNELS_LAST if self.channels_last and self.kind in NARROW else "")

    @property
    def is_product(self) -> bool:
        """Return whether tensor cores can compute it."""
        return self.kind == "fused attention" or (self.product is not None and self.kind != "depthwise convolution")

    def ways(self, sheet: DeviceSpec, dtype: str = "float32") -> Iterator[tuple[float, float]]:
        """FLOPs and bytes of each way to compute it; the fastest counts."""
        # What a pooling window costs beside its bytes was measured on GPUs.
        flops = 0.0 if self.kind == "pooling" and sheet.backend == "cpu" else self.flops
        if self.product is not None:
            tiled = sheet.backend == "cuda" and self.kind != "depthwise convolution"
            flops += self.product.tiled_flops(sheet.processors) if tiled else 2 * self.product.macs
        in_flight = _ROWS_IN_FLIGHT * sheet.processors * self.row_bytes
        cache = sheet.l2_mib * 2**20
        again = self.again_bytes if in_flight > _L2_SHARE * cache else 0
        # half of the bytes are read
        again += self.across_bytes if sheet.backend == "cuda" and self.bytes > 2 * cache else 0
        moved = (self.bytes + again) * max(1.0, sheet.processors / self.blocks if self.blocks else 1.0)
        yield flops, max(moved, self._alone_s(dtype) * sheet.bandwidth if sheet.backend == "cuda" else 0.0)
        # On Hopper cuDNN has no engine of Winograd for float32 without TF32.
        if self.winograd is not None and sheet.backend == "cuda" and not (sheet.is_hopper and dtype == "float32"):
            yield self.winograd.tiled_flops(sheet.processors), float(self.winograd.elements * itemsize(dtype))

    def _alone_s(self, dtype: str) -> float:
        """Seconds of one thread, block of threads or tile, over the share of the bandwidth of its class."""
        sides = self.product
        if sides and sides.batch > 1 and self.kind.endswith(" product") and dtype == "float32":
            return sides.k * DEPTH_S
        return self.serial_s


def matrix_product(sides: Product, itemsize: int = 4, more: int = 0) -> Work:
    """A product that reads and writes each number once, and `more` bytes."""
    return Work(sides.kind, itemsize * sides.elements + more, sides, form=sides.form)


@dataclass(frozen=True)
class Convolution:
    """A convolution of `images` maps [inputs, *size] to maps [outputs, *out]; `groups` of channels do not mix."""

    images: int
    inputs: int
    outputs: int
    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    channels_last: bool = False

    @property
    def kind(self) -> Class:
        if self.groups > 1:
            return "depthwise convolution" if self.groups == self.inputs else "grouped convolution"
        if set(self.kernel) == {1}:
            return "convolution 1x1" if set(self.stride) == {1} else "strided convolution 1x1"
        plain = self.kernel == (3, 3) and not self.transposed and set(self.stride) | set(self.dilation) == {1}
        return "convolution 3x3" if plain else "other convolution"

    def work(self, turn: Turn = "forward", itemsize: int = 4) -> Work:
        """The kernel that computes the output or a gradient, as the product that it unfolds to."""
        places = self.images * math.prod(self.size if self.transposed else self.out)
        taps = math.prod(self.kernel) * (self.outputs if self.transposed else self.inputs) // self.groups
        across = (self.inputs if self.transposed else self.outputs) // self.groups
        weights = self.inputs * self.outputs // self.groups * math.prod(self.kernel)
        maps = self.images * (self.inputs * math.prod(self.size) + self.outputs * math.prod(self.out))
        unfolded = Product(self.groups, *_turned(places, across, taps, turn))
        winograd = self._winograd(turn) if self.kind == "convolution 3x3" else None
        converts = self.kind not in NARROW and not self.channels_last
        by_thread = self.kind == "depthwise convolution" and not self.channels_last and turn != "weight gradient"
        return Work(
            self.kind,
            itemsize * (maps + weights),
            unfolded,
            winograd,
            turn=turn,
            serial_s=math.prod(self.kernel) * TAP_S if by_thread else 0.0,
            converted_bytes=2 * itemsize * maps if converts else 0,
            channels_last=self.channels_last,
            form=self._form(turn) if self.kind == "depthwise convolution" else 0.0,
            reach=self._reach if self.kind == "depthwise convolution" and turn == "forward" else 0,
        )

    def _form(self, turn: Turn) -> float:
        """Taps of a depthwise filter, or that oneDNN's fast kernels do not take it, whatever the processor.

        The gradients take no dilated filter, and the weight's none that is wider than FAST_WIDTH or higher than the
        map.
        """
        fits = self.kernel[-1] <= FAST_WIDTH and self.kernel[0] <= self.size[0]
        is_slow = turn != "forward" and (max(self.dilation) > 1 or (turn == "weight gradient" and not fits))
        return NO_FAST if is_slow else float(math.prod(self.kernel))

    @property
    def _reach(self) -> int:
        """Columns of padding to the left: half of what the outputs reach beside the map."""
        width = (self.out[-1] - 1) * self.stride[-1] + (self.kernel[-1] - 1) * self.dilation[-1] + 1
        return max(0, math.ceil((width - self.size[-1]) / 2))

    def _winograd(self, turn: Turn) -> Product:
        """The products of a 3x3 convolution under F(4 x 4, 3 x 3): one for each of 36 positions."""
        tiles = self.images * math.prod(math.ceil(side / _WINOGRAD) for side in self.out)
        return Product((_WINOGRAD + 2) ** 2, *_turned(tiles, self.outputs, self.inputs, turn))


def _turned(m: int, n: int, k: int, turn: Turn) -> tuple[int, int, int]:
    """The sides of the product that gives the output, or a gradient (the input's sums over outputs)."""
    return {"forward": (m, n, k), "input gradient": (m, k, n), "weight gradient": (n, k, m)}[turn]
