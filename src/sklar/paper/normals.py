"""Standard normals in single precision by counter: any value can be drawn without those before it.

Words come from Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011), keyed by the seed. A word of 32 bits gives a sign
and the chance q that a normal is larger in size, an odd multiple of 2^-32. With x = 1 - q and w = -log(1 - x^2) the
normal is x Q(w), with Q a polynomial of w in the middle, and of its square root in the tails (Giles 2010): minimax fits
to scipy's `ndtri` and `log1p`. No value is larger in size than 6.4: the chance of one is 2e-10.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sklar.kernel.cells import Floats
from sklar.machine.compiled import compiled

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_SQRT_HALF_BITS, _MANTISSA = np.int32(0x3F3504F3), np.int32(0x007FFFFF)
_ONE, _STEP, _HALF_STEP, _LN2 = (np.float32(each) for each in (1.0, 2.0**-31, 2.0**-32, 0.6931471805599453))
_GROUP = 64
# w = 5 at q (2 - q) = exp(-5).
_TAIL_WORDS = np.uint32(2**32 * (1 - math.sqrt(1 - math.exp(-5))))

# Coefficients from the highest power down.
_LOG = (
    0.087223585, -0.143668445, 0.149522663, -0.165623928, 0.199568336, -0.250020741, 0.333341856, -0.49999988,
    0.999999974,
)  # fmt: skip
_MIDDLE = (
    -1.24323737e-08, 3.28558898e-08, 6.59264079e-07, -4.89700365e-06, -7.01923021e-06, 0.000308785666, -0.00177164456,
    -0.00590771704, 0.348802038, 2.12331348,
)  # fmt: skip
_TAIL = (
    6.40263941e-05, -2.41616959e-05, -0.000460636075, 0.00102387601, -0.00136611383, 0.00205010523, -0.00365628456,
    0.00562693655, 1.4236146, 4.57467471,
)  # fmt: skip


@compiled("void(uint32[::1], uint64, uint64, uint64)", boundscheck=False)
def words(out: NDArray[np.uint32], counter: np.uint64 | int, upper: int, seed: int) -> None:
    """Four random words for each counter from (`upper`, `counter`) on, 64 bits each; `out` has a multiple of four."""
    for i in range(out.size >> 2):
        at = counter + np.uint64(i)
        c0, c1, c2, c3 = at & _LOW, at >> _HALF, upper & _LOW, upper >> _HALF
        k0, k1 = seed & _LOW, seed >> _HALF
        for _ in range(10):
            first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
            c0, c1, c2, c3 = (second >> _HALF) ^ c1 ^ k0, second & _LOW, (first >> _HALF) ^ c3 ^ k1, first & _LOW
            k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _LOW, (k1 + np.uint64(0xBB67AE85)) & _LOW
        out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3] = c0, c1, c2, c3


@compiled()
def _polynomial(coefficients, x):  # type: ignore[no-untyped-def]
    value = np.float32(0.0)
    for c in coefficients:
        value = value * x + np.float32(c)
    return value


@compiled()
def _minus_log(t):  # type: ignore[no-untyped-def]
    """-log t for a t of at most one, but not below zero."""
    # The exponent is chosen so that the mantissa 1 + f lies between the roots of 1/2 and of 2.
    bits = np.int32(np.float32(t).view(np.int32) - _SQRT_HALF_BITS)
    exponent = np.int32(bits >> np.int32(23))
    f = np.int32((bits & _MANTISSA) + _SQRT_HALF_BITS).view(np.float32) - _ONE
    return max(-(_polynomial(_LOG, f) * f + np.float32(exponent) * _LN2), np.float32(0.0))


@compiled("void(uint32[::1], float32[::1])", boundscheck=False, fastmath={"contract"}, error_model="numpy")
def to_normals(drawn: NDArray[np.uint32], out: Floats) -> None:
    """The normal of each word."""
    for i in range(out.size):
        word = drawn[i]
        # Through a signed integer: processors convert those directly.
        q = np.float32(np.int32(word >> np.uint32(1))) * _STEP + _HALF_STEP
        x = _ONE - q
        size = x * _polynomial(_MIDDLE, _minus_log(q * (_ONE + x)) - np.float32(2.5))
        out[i] = size if word & np.uint32(1) else -size
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
                    q = np.float32(np.int32(group[i] >> np.uint32(1))) * _STEP + _HALF_STEP
                    x = _ONE - q
                    size = x * _polynomial(_TAIL, np.sqrt(_minus_log(q * (_ONE + x))) - np.float32(3.4))
                    out[start + i] = size if group[i] & np.uint32(1) else -size


@compiled("void(float32[:, ::1], uint64, uint64, uint64)", boundscheck=False)
def fill_normals(out: Floats, first: int, block: int, seed: int) -> None:
    """Normals number `first`, `first` + 1, ... of every row of a block; `first` and the columns are multiples of four.

    A value depends on its row, its number, the block and the seed alone.
    """
    drawn = np.empty(out.shape[1], dtype=np.uint32)
    for row in range(out.shape[0]):
        words(drawn, (np.uint64(row) << _HALF) + (first >> np.uint64(2)), block, seed)
        to_normals(drawn, out[row])
