"""Standard normals in single precision by counter: any value can be drawn without those before it.

Words come from Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011),
keyed by the seed. A word of 32 bits gives a sign and the chance q that a normal is larger in size, an odd multiple of
2^-32. With x = 1 - q and w = -log(1 - x^2) the normal is x Q(w), and Q is smooth enough for two polynomials: of w in
the middle, and of its square root in the tails (the idea of M. Giles, "Approximating the erfinv function", 2010). Their
coefficients, and the logarithm's, were fitted to scipy's `ndtri` and `log1p`, to the least largest relative error. No
value is larger in size than 6.4: the chance of one is 2e-10.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sklar.machine.compiled import compiled

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SQRT_HALF_BITS = np.int32(0x3F3504F3)
_MANTISSA = np.int32(0x007FFFFF)
_LN2 = np.float32(0.6931471805599453)
_ONE = np.float32(1.0)
_STEP = np.float32(2.0**-31)
_HALF_STEP = np.float32(2.0**-32)
_GROUP = 64
# w = 5 at q (2 - q) = exp(-5).
_TAIL_WORDS = np.uint32(2**32 * (1 - math.sqrt(1 - math.exp(-5))))

_LOG = tuple(
    np.float32(c)
    for c in (
        0.999999974, -0.49999988, 0.333341856, -0.250020741, 0.199568336, -0.165623928, 0.149522663, -0.143668445,
        0.087223585,
    )
)  # fmt: skip
_MIDDLE = tuple(
    np.float32(c)
    for c in (
        2.12331348, 0.348802038, -0.00590771704, -0.00177164456, 0.000308785666, -7.01923021e-06, -4.89700365e-06,
        6.59264079e-07, 3.28558898e-08, -1.24323737e-08,
    )
)  # fmt: skip
_TAIL = tuple(
    np.float32(c)
    for c in (
        4.57467471, 1.4236146, 0.00562693655, -0.00365628456, 0.00205010523, -0.00136611383, 0.00102387601,
        -0.000460636075, -2.41616959e-05, 6.40263941e-05,
    )
)  # fmt: skip


@compiled()
def _round(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """One round of Philox on words held in 64 bits, and the next round's keys."""
    first = np.uint64(0xD2511F53) * c0
    second = np.uint64(0xCD9E8D57) * c2
    return (
        (second >> _HALF) ^ c1 ^ k0,
        second & _LOW,
        (first >> _HALF) ^ c3 ^ k1,
        first & _LOW,
        (k0 + np.uint64(0x9E3779B9)) & _LOW,
        (k1 + np.uint64(0xBB67AE85)) & _LOW,
    )


@compiled("void(uint32[::1], uint64, uint64, uint64)", boundscheck=False)
def words(out: NDArray[np.uint32], counter: np.uint64 | int, upper: int, seed: int) -> None:
    """Four random words for each of the counters from this one on; `out` has a multiple of four.

    `counter` and `upper` are the lower and the upper 64 bits of the first counter.
    """
    low, high = upper & _LOW, upper >> _HALF
    first, second = seed & _LOW, seed >> _HALF
    for i in range(out.size >> 2):
        at = counter + np.uint64(i)
        c0, c1, c2, c3, k0, k1 = _round(at & _LOW, at >> _HALF, low, high, first, second)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
        out[4 * i] = c0
        out[4 * i + 1] = c1
        out[4 * i + 2] = c2
        out[4 * i + 3] = c3


@compiled()
def _minus_log(t):  # type: ignore[no-untyped-def]
    """-log t for a t of at most one, but not below zero."""
    # The exponent is chosen so that the mantissa 1 + f lies between the roots of 1/2 and of 2.
    bits = np.int32(np.float32(t).view(np.int32) - _SQRT_HALF_BITS)
    exponent = np.int32(bits >> np.int32(23))
    f = np.int32((bits & _MANTISSA) + _SQRT_HALF_BITS).view(np.float32) - _ONE
    log = _LOG[8]
    log = log * f + _LOG[7]
    log = log * f + _LOG[6]
    log = log * f + _LOG[5]
    log = log * f + _LOG[4]
    log = log * f + _LOG[3]
    log = log * f + _LOG[2]
    log = log * f + _LOG[1]
    log = log * f + _LOG[0]
    return max(-(log * f + np.float32(exponent) * _LN2), np.float32(0.0))


@compiled("float32(uint32)", fastmath={"contract"}, error_model="numpy")
def _tail(word: np.uint32) -> np.float32:
    """The normal of a word whose w is 5 or more."""
    q = np.float32(np.int32(word >> np.uint32(1))) * _STEP + _HALF_STEP
    x = _ONE - q
    v = np.sqrt(_minus_log(q * (_ONE + x))) - np.float32(3.4)
    size = _TAIL[9]
    for k in range(8, -1, -1):
        size = size * v + _TAIL[k]
    return x * size if word & np.uint32(1) else -x * size


@compiled(
    "void(uint32[::1], float32[::1])",
    boundscheck=False,
    fastmath={"contract"},
    error_model="numpy",
)
def to_normals(drawn: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """The normal of each word."""
    for i in range(out.size):
        word = drawn[i]
        # Through a signed integer: processors convert those directly.
        q = np.float32(np.int32(word >> np.uint32(1))) * _STEP + _HALF_STEP
        x = _ONE - q
        v = _minus_log(q * (_ONE + x)) - np.float32(2.5)
        size = _MIDDLE[9]
        size = size * v + _MIDDLE[8]
        size = size * v + _MIDDLE[7]
        size = size * v + _MIDDLE[6]
        size = size * v + _MIDDLE[5]
        size = size * v + _MIDDLE[4]
        size = size * v + _MIDDLE[3]
        size = size * v + _MIDDLE[2]
        size = size * v + _MIDDLE[1]
        size = size * v + _MIDDLE[0]
        out[i] = x * size if word & np.uint32(1) else -x * size
    # One word in 300 is in a tail: found by the group, so that most are never looked at one by one.
    for start in range(0, out.size, _GROUP):
        group = drawn[start : start + _GROUP]
        least = group[0]
        # Over a slice from 0: other indices might be negative to the compiler, and would not be vectorized.
        for i in range(group.size):
            least = min(least, group[i])
        if least < _TAIL_WORDS:
            for i in range(group.size):
                if group[i] < _TAIL_WORDS:
                    out[start + i] = _tail(group[i])


@compiled("void(float32[:, ::1], uint64, uint64, uint64)", boundscheck=False)
def fill_normals(out: NDArray[np.float32], first: int, block: int, seed: int) -> None:
    """Normals number `first`, `first` + 1, ... of every row of a block; `first` and the columns are multiples of four.

    A value depends on its row, its number, the block and the seed alone.
    """
    drawn = np.empty(out.shape[1], dtype=np.uint32)
    for row in range(out.shape[0]):
        words(drawn, (np.uint64(row) << _HALF) + (first >> np.uint64(2)), block, seed)
        to_normals(drawn, out[row])
