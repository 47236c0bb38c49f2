"""PyTorch's choice of a convolution on a card: which kernels it asks cuDNN for, and what a refused engine takes."""

import math
from dataclasses import dataclass

from ctxbench.meta.calls import Operation
from ctxbench.plugins.cudnn.library import NUMBERS, CudnnChoice, CudnnConvolution
from ctxbench.plugins.memory.convolution_rules import winograd_numbers

CALLS = ("aten.convolution", "aten.convolution_backward")
# Filters, in numbers along a side, for which PyTorch lets cuDNN compute a depthwise convolution in float16.
DEPTHWISE_FILTERS = (1, 3, 5)
# Channels and columns from which it does.
DEPTHWISE_CHANNELS, DEPTHWISE_COLUMNS = 32, 7
# The numbers of an image that cuDNN's 32-bit kernels can address; PyTorch splits more.
MOST_NUMBERS = 2**31 - 1
# Engines that cuDNN refuses where no device answers, by the pass: of cuBLAS, of depthwise convolutions, and Winograd's
# algorithm in steps.
CUBLAS = {"forward": 58, "image": 63, "weight": 62}
DEPTHWISE = {"forward": (5,), "image": (6,), "weight": (16, 19)}
WINOGRAD = {"weight": 17}
# Of cuBLAS's split of a weight gradient in float32, by the card's processors: a tile's side, the most parts, the fewest
# positions of the map in each, and a small block.
TILE, MOST_PARTS, LEAST_POSITIONS, SMALL = 128, 32, 64, 512

# Numbers of a half type that a row of a matrix holds a multiple of where cuBLAS takes it as it is; the most sums into
# which it was seen to split an unaligned weight's gradient or map, and the least and most times the rule in TF32.
ALIGNED, PARTS_OF_A_GRADIENT, PARTS_OF_A_MAP, TF32_PARTS = 8, 18, 2, (1 / 7, 2.0)
# Engines of tensor cores for which cuDNN chooses other tiles where a driver tells it more, and the least and most times
# that their workspace was then.
TILED = {"forward": (62, 67), "image": (67, 71), "weight": (65, 68)}
WITH_A_DRIVER = (0.92, 1.56)


@dataclass(frozen=True)
class Workspace:
    """Bytes that a convolution takes beside its maps, the engine, and whether a rule tells them in cuDNN's place.

    Where an H200 may take another number, `least` and `most` are the ends of what was seen for such a convolution.
    """

    bytes: int
    engine: int
    by_rule: bool
    least: int
    most: int


def asked_of(call: Operation, tf32: bool) -> list[CudnnConvolution] | None:
    """Convolutions that cuDNN is asked for a call, in PyTorch's order; None where it is not known who computes it."""
    made = convolutions(call, tf32)
    backward = call.operator == "convolution_backward"
    transposed, groups = call.args[7 if backward else 6], call.args[9 if backward else 8]
    return [] if made and not transposed and any(is_own_kernel(each, groups) for each in made) else made


def not_compared(call: Operation) -> str:
    """The kinds of a convolution that no GPU was compared with, in words; "" where one was."""
    maps = call.args[1:3] if call.operator == "convolution_backward" else call.args[:2]
    kinds = {
        "channels last": any(each.is_channels_last for each in maps),
        "three dimensions": maps[1].ndim > 4,
        "transposed": bool(call.args[7 if call.operator == "convolution_backward" else 6]),
    }
    return ", ".join(kind for kind, holds in kinds.items() if holds)


def convolutions(call: Operation, tf32: bool) -> list[CudnnConvolution] | None:
    """Convolutions of a call, whoever computes them, in PyTorch's order; None where cuDNN cannot be asked for them."""
    backward = call.operator == "convolution_backward"
    image, weight = call.args[1:3] if backward else call.args[:2]
    output = call.args[0] if backward else call.out[0]
    stride, padding, dilation, transposed = call.args[4:8] if backward else call.args[3:7]
    mask = call.args[10][:2] if backward else ()
    wanted = [each for each, is_asked in zip(("image", "weight"), mask, strict=False) if is_asked]
    maps = (image, weight, output)
    if weight.dtype not in NUMBERS or max(each.numel() for each in maps) > MOST_NUMBERS:
        return None
    last = any(each.is_channels_last for each in (image, weight))
    shapes = [each.shape for each in maps]
    sides = len(weight.shape) - 2
    steps = [tuple(each) * (sides if len(each) == 1 else 1) for each in (padding, stride, dilation)]
    if sides == 1:  # a map of one row
        shapes = [(*shape[:2], 1, shape[2]) for shape in shapes]
        steps = [(first, *own) for first, own in zip((0, 1, 1), steps, strict=True)]
    if transposed:  # the forward pass is the gradient of the image of another convolution
        shapes = [shapes[2], shapes[1], shapes[0]]
        turns = {"image": "forward", "weight": "weight", "forward": "image"}
    else:
        turns = {each: each for each in ("image", "weight", "forward")}
    forms = dict(zip(("image", "weight", "output", "padding", "stride", "dilation"), [*shapes, *steps], strict=True))
    in_tf32 = tf32 and weight.dtype == "float32"
    return [
        CudnnConvolution(turns[turn], **forms, dtype=weight.dtype, tf32=in_tf32, last=last)
        for turn in (wanted if backward else ["forward"])
    ]


def is_depthwise(asked: CudnnConvolution) -> bool:
    """Return whether each channel of the image has filters of its own."""
    return asked.weight[1] == 1 and asked.image[1] > 1


def is_own_kernel(asked: CudnnConvolution, groups: int) -> bool:
    """Return whether PyTorch computes a depthwise convolution itself (aten/src/ATen/native/Convolution.cpp)."""
    if groups == 1 or asked.weight[1] != 1 or asked.last:
        return False
    rows, columns = asked.image[2], asked.image[-1]
    step = asked.stride[-1]
    fits = asked.dtype == "float16" and len(asked.stride) == 2 and set(asked.dilation) == {1}
    fits = fits and (asked.stride[0] == step or rows == 1) and asked.image[1] >= DEPTHWISE_CHANNELS
    if not fits:
        return True
    if rows == 1 and step == 1:
        return False
    side = asked.weight[-1]
    square = asked.weight[2] == side and side in DEPTHWISE_FILTERS and columns >= DEPTHWISE_COLUMNS
    return not (square and (step == 1 or (step == 2 and _fast_in_steps_of_two(asked))))


def _fast_in_steps_of_two(asked: CudnnConvolution) -> bool:
    images, channels, columns, side = asked.image[0], asked.image[1], asked.image[-1], asked.weight[-1]
    if images == 1:
        return side > 1 or columns <= 28
    if side == 1:
        return images <= 16 and channels >= 128 and columns <= 7
    return channels >= 512 or (channels >= 256 and columns >= 28)


def workspace(asked: CudnnConvolution, choice: CudnnChoice, processors: int) -> Workspace:
    """The workspace on a card, where engines that rank first may be refused for want of a device.

    Which of them a device takes, and their bytes, was read off half of the convolutions that an H200 was asked about
    (docs/plugins/cudnn.md).
    """
    for engine in choice.refused:
        size = _refused(asked, engine, processors)
        if size is not None:
            ends = _ends_of_cublas(asked, size) if engine == CUBLAS[asked.turn] else (size, size)
            return Workspace(size, engine, True, *ends)
    least, most = 1.0, 1.0
    if choice.engine in TILED[asked.turn] and (asked.dtype != "float32" or asked.tf32):
        least, most = WITH_A_DRIVER
    if {*choice.refused} & {*DEPTHWISE[asked.turn]}:  # a device may take one of these, which take none
        least = 0.0
    return Workspace(choice.bytes, choice.engine, False, round(least * choice.bytes), round(most * choice.bytes))


def _refused(asked: CudnnConvolution, engine: int, processors: int) -> int | None:
    """Bytes of a refused engine that a device takes; None if it refuses it, too."""
    undilated = set(asked.dilation) == {1}
    dense = asked.image[1] == asked.weight[1]
    filter = asked.weight[2:]
    if engine == CUBLAS[asked.turn]:
        plain = set(filter) == {1} and dense and set(asked.stride) == {1} and not any(asked.padding)
        in_tf32 = asked.dtype != "float32" or asked.tf32
        return _of_cublas(asked, processors) if plain and in_tf32 else None
    if engine in DEPTHWISE[asked.turn]:
        return 0 if is_depthwise(asked) and undilated and len({*filter}) == 1 else None
    if engine == WINOGRAD.get(asked.turn):
        plain = filter == (3, 3) and dense and undilated and set(asked.stride) == {1}
        return 4 * winograd_numbers(asked.image[0], asked.output[2:], asked.weight) if plain else None
    return None


def _of_cublas(asked: CudnnConvolution, processors: int) -> int:
    """The gradient of a weight is summed in parts: of each image, and in float32 of parts of the map."""
    if asked.turn != "weight":
        return 0
    images, (outputs, inputs) = asked.image[0], asked.weight[:2]
    gradient = 4 * outputs * inputs
    positions = math.prod(asked.output[2:])
    if images > 1 or asked.dtype != "float32" or positions < LEAST_POSITIONS:
        return images * gradient
    tiles = math.ceil(outputs / TILE) * math.ceil(inputs / TILE)
    return (min(MOST_PARTS, processors // tiles, positions // LEAST_POSITIONS) + 1) * gradient + SMALL


def _ends_of_cublas(asked: CudnnConvolution, size: int) -> tuple[int, int]:
    """The least and most that cuBLAS was seen to take: it splits sums in TF32, and where a half type is not aligned."""
    outputs, inputs = asked.weight[:2]
    if asked.dtype == "float32":
        least, most = TF32_PARTS if asked.turn == "weight" else (1.0, 1.0)
        return round(least * size), round(most * size)
    if outputs % ALIGNED == 0 and inputs % ALIGNED == 0:
        return size, size
    if asked.turn == "weight":
        return size, max(size, PARTS_OF_A_GRADIENT * 4 * outputs * inputs)
    return size, max(size, PARTS_OF_A_MAP * 4 * math.prod(asked.image if asked.turn == "image" else asked.output))
