"""Work that is not in the count: operators without a rule, and what some of them cost by a convention that is named.

An FFT of N numbers takes 5 N log2 N operations, one of real numbers half of them (https://www.fftw.org/speed/), and an
operator on matrices [n, n] the leading term of the direct method (Golub and Van Loan, Matrix Computations, 2013). Two
operations are one multiply-accumulate. A product of complex numbers is counted once and takes four real ones, one of a
complex and a real number two.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log2, prod
from typing import Any

from ctxbench.base.texts import counted, listed

# What a product with complex numbers is called among the operators that are left out.
COMPLEX = "complex products"
_FFT, _INVERSE, _SOLVE, _FACTOR = "FFT", "matrix inverse", "linear solve", "matrix factorization"
_BY = {
    _FFT: "5/2 N log2 N, half of it for real numbers",
    _INVERSE: "n^3",
    _SOLVE: "the leading term",
    _FACTOR: "the leading term",
}


def _transform(args: Sequence[Any], output: Any) -> float:
    """An FFT over the axes `args[1]`; where one side is real, over that side."""
    both_complex = _is_complex(args[0]) and _is_complex(output)
    image = output if _is_complex(args[0]) else args[0]
    length = prod(image.shape[axis] for axis in args[1])
    return (5 / 2 if both_complex else 5 / 4) * int(image.numel()) * log2(max(1, length))


def _square(share: float) -> Callable[[Sequence[Any], Any], float]:
    """So many times n^3 for each matrix [n, n] of the first argument."""
    return lambda args, _: share * int(args[0].numel() * args[0].shape[-1])


def _solved(share: float, right: int, factor: float = 0.0) -> Callable[[Sequence[Any], Any], float]:
    """`share` n^2 for each column of the argument `right`, and `factor` n^3 for each matrix of the first but this."""

    def macs(args: Sequence[Any], _: Any) -> float:
        matrix, columns = args[0 if right else 1], args[right]
        size = int(matrix.shape[-1])
        return size * (share * int(columns.numel()) + factor * int(matrix.numel()))

    return macs


def _qr(args: Sequence[Any], _: Any) -> float:
    """R by Householder's reflections and a thin Q of [m, n]."""
    small, large = sorted(map(int, args[0].shape[-2:]))
    return int(args[0].numel()) * (2 * small - 2 / 3 * small**2 / large)


# The word for an operator, and what one call costs by the convention.
_KNOWN: dict[str, tuple[str, Callable[[Sequence[Any], Any], float]]] = {
    **{f"aten::_fft_{kind}": (_FFT, _transform) for kind in ("c2c", "r2c", "c2r")},
    "aten::linalg_inv_ex": (_INVERSE, _square(1)),
    "aten::_linalg_solve_ex": (_SOLVE, _solved(1, 1, 1 / 3)),
    "aten::linalg_lu_solve": (_SOLVE, _solved(1, 2)),
    "aten::linalg_solve_triangular": (_SOLVE, _solved(1 / 2, 1)),
    "aten::triangular_solve": (_SOLVE, _solved(1 / 2, 0)),
    "aten::cholesky_solve": (_SOLVE, _solved(1, 0)),
    "aten::linalg_cholesky_ex": (_FACTOR, _square(1 / 6)),
    "aten::linalg_lu_factor_ex": (_FACTOR, _square(1 / 3)),
    "aten::linalg_lu": (_FACTOR, _square(1 / 3)),
    "aten::_linalg_det": (_FACTOR, _square(1 / 3)),
    "aten::_linalg_slogdet": (_FACTOR, _square(1 / 3)),
    "aten::linalg_qr": (_FACTOR, _qr),
}


def estimate(name: str, args: Sequence[Any], output: Any) -> int | None:
    """Cost of one call of an operator without a rule by its convention; None where there is none."""
    known = _KNOWN.get(name)
    return round(known[1](args, output)) if known else None


def complex_rest(macs: int, args: Sequence[Any], output: Any) -> int:
    """The real products that `macs` complex ones are beyond one each; 0 of real ones."""
    if not (_is_complex(output) and macs):
        return 0
    return macs * (3 if sum(map(_is_complex, args)) > 1 else 1)


def _is_complex(value: Any) -> bool:
    return "complex" in str(getattr(value, "dtype", ""))


def in_words(calls: Mapping[str, int], estimates: Mapping[str, int]) -> str:
    """Words for what a count leaves out: `2 FFTs (1,024 MACs by 5/2 N log2 N, ...), 1 call of linalg_eigh`."""
    numbers: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for name, number in calls.items():
        word, *_ = _KNOWN.get(name, (name,))
        numbers[word] = numbers.get(word, 0) + number
        sizes[word] = sizes.get(word, 0) + estimates.get(name, 0)
    return listed([_part(word, number, sizes[word]) for word, number in numbers.items()])


def _part(word: str, number: int, macs: int) -> str:
    if word == COMPLEX:
        return f"{macs:,} further real products of complex ones, each of which counts once"
    if word in _BY:
        return f"{counted(number, word)} ({macs:,} MACs by {_BY[word]})"
    return f"{counted(number, 'call')} of {word.removeprefix('aten::')}"
